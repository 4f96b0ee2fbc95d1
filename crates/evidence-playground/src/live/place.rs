//! Where a model comes from.

use evidence_model_protocol::Source;
use serde::Deserialize;
use web_sys::{File, Url};

use crate::browser;

/// Where the hub's repositories are.
const HUB: &str = "https://huggingface.co/";
/// The revision that is loaded.
const REVISION: &str = "main";
/// The folder of the bundled models, beside the page.
const BUNDLED: &str = "models";

/// The kinds of places that can be chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PlaceKind {
    /// A model that lies beside the page.
    Bundled,
    /// A repository of the Hugging Face hub.
    #[default]
    Hub,
    /// A folder of the page's own origin.
    Address,
    /// Files of this machine.
    Files,
}

/// A model that lies beside the page.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Bundled {
    /// Its folder in `models/`.
    pub folder: String,
    /// A few words.
    pub title: String,
    /// Bytes of its files.
    pub byte_count: usize,
}

/// A place as the worker takes it.
#[derive(Debug, Clone)]
pub struct Place {
    /// What the worker is asked.
    pub source: Source,
    /// The files, where they are this machine's.
    pub files: Vec<File>,
    /// What people call it.
    pub name: String,
}

impl Bundled {
    /// The models that lie beside the page.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    pub async fn list() -> Result<Vec<Self>, String> {
        let bytes = browser::fetch(&format!("{BUNDLED}/index.json")).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| format!("The list of bundled models cannot be read: {error}."))
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        Place {
            source: Source::Url {
                url: browser::address_of(&format!("{BUNDLED}/{}/", self.folder)),
            },
            files: Vec::new(),
            name: self.title.clone(),
        }
    }
}

impl Place {
    /// A repository of the hub, named `owner/name` or by its address.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    pub fn hub(typed: &str) -> Result<Self, String> {
        let name = typed.trim().trim_start_matches(HUB).trim_end_matches('/');
        if name.split('/').filter(|part| !part.is_empty()).count() != 2 {
            return Err("A repository is named owner/name, as in Qwen/Qwen3-0.6B.".to_owned());
        }
        Ok(Self {
            source: Source::Hub {
                repository: name.to_owned(),
                revision: REVISION.to_owned(),
            },
            files: Vec::new(),
            name: name.to_owned(),
        })
    }

    /// A folder of the page's own origin.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    pub fn address(typed: &str) -> Result<Self, String> {
        let typed = typed.trim();
        if typed.is_empty() {
            return Err("Type the address of the folder that holds config.json.".to_owned());
        }
        let address = browser::address_of(typed);
        let origin = |address: &str| Url::new(address).map(|url| url.origin()).ok();
        if origin(&address) != origin(&browser::address_of(".")) {
            return Err(
                "The page connects to its own host and to Hugging Face alone. Put the model beside \
                 the page, name its repository, or choose its files."
                    .to_owned(),
            );
        }
        let folder = address.trim_end_matches('/');
        let name = folder.rsplit('/').next().unwrap_or(folder).to_owned();
        let url = format!("{folder}/");
        Ok(Self {
            source: Source::Url { url },
            files: Vec::new(),
            name,
        })
    }

    /// Files of this machine.
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    pub fn files(files: Vec<File>) -> Result<Self, String> {
        let weights = files
            .iter()
            .map(File::name)
            .find(|name| name.ends_with(".safetensors"));
        let Some(weights) = weights else {
            return Err(
                "Choose the folder of a checkpoint: config.json, tokenizer.json, \
                 tokenizer_config.json and the .safetensors files."
                    .to_owned(),
            );
        };
        Ok(Self {
            source: Source::Files,
            files,
            name: weights,
        })
    }
}

/// The repository that was downloaded from this address, if it is one's.
pub fn repository_of(url: &str) -> Option<&str> {
    url.strip_prefix(HUB)?
        .strip_suffix(&format!("/resolve/{REVISION}/"))
}

/// What people call the place that was downloaded from this address.
pub fn name_of(url: &str) -> String {
    let beside_page = || url.strip_prefix(&browser::address_of("."));
    repository_of(url)
        .or_else(beside_page)
        .unwrap_or(url)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_named_by_its_name_or_its_address() {
        for typed in [
            "Qwen/Qwen3-0.6B",
            " https://huggingface.co/Qwen/Qwen3-0.6B/ ",
        ] {
            assert_eq!(Place::hub(typed).unwrap().name, "Qwen/Qwen3-0.6B");
        }
        for typed in ["", "Qwen", "Qwen/", "a/b/c", "https://elsewhere.org/a/b"] {
            assert!(Place::hub(typed).is_err(), "{typed}");
        }
    }

    #[test]
    fn what_was_downloaded_can_be_named_again() {
        let url = "https://huggingface.co/Qwen/Qwen3-0.6B/resolve/main/";
        assert_eq!(repository_of(url), Some("Qwen/Qwen3-0.6B"));
        assert_eq!(repository_of("https://own.org/models/a/"), None);
    }
}
