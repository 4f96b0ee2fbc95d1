//! What the page's address asks for: how a link to the page, or documentation that embeds it, sets it
//! up.
//!
//! Everything here is a wish. What cannot be fulfilled is said to the user, and the page does without.

use leptos::prelude::{Set as _, window};
use web_sys::UrlSearchParams;

use crate::limits::{Limit, LimitInputs};
use crate::samples::{RecordedSample, Sample};
use crate::state::{Contract, Playground};

/// Set by `bounded-evidence-playground.js`, and read by `web/embedded.js`, too.
const EMBEDDED: &str = "embedded";
/// What only an embedded page looks at.
const OF_EMBEDDING: [&str; 3] = [EMBEDDED, "mode", "theme"];

/// The parameters of the page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    sample: Option<String>,
    script: Option<String>,
    contract: Contract,
    limits: LimitInputs,
    problems: Vec<String>,
}

impl Parameters {
    /// Those of this page's address.
    pub fn of_page() -> Self {
        given().map_or_else(Self::default, |given| Self::read(|name| given.get(name)))
    }

    fn read(get: impl Fn(&str) -> Option<String>) -> Self {
        let mut problems = Vec::new();
        let contract = match get("contract").as_deref() {
            None | Some("range-paths") => Contract::RangePaths,
            Some("tool-output") => Contract::ToolOutput,
            Some(other) => {
                problems.push(format!(
                    "This page was asked for the contract {other:?}; there are range-paths, which \
                     it uses, and tool-output."
                ));
                Contract::default()
            }
        };
        if let Some(mode) = get("mode").filter(|mode| mode != "full" && mode != "run") {
            problems.push(format!(
                "This page was asked for the mode {mode:?}; there are full, which it shows, and run."
            ));
        }
        let mut limits = LimitInputs::default();
        for setting in get("limits").unwrap_or_default().split_whitespace() {
            let found = setting
                .split_once('=')
                .and_then(|(name, value)| Some((limit_of_name(name)?, value)));
            match found {
                // Whether it is a number, and a good one, is said where it stands.
                Some((limit, value)) => limits.set(limit, value.to_owned()),
                None => problems.push(format!(
                    "This page was asked for the limit {setting:?}, which is none; an example is \
                     max_inline_bytes=1024."
                )),
            }
        }
        Self {
            sample: get("sample"),
            script: get("script"),
            contract,
            limits,
            problems,
        }
    }

    /// Sets the page up, but for what has to be fetched.
    pub fn apply(&self, page: Playground) {
        page.contract.set(self.contract);
        page.limits.set(self.limits.clone());
        for problem in &self.problems {
            page.notify(problem);
        }
    }

    /// The sample that is asked for, or else the first; none where there are no samples.
    ///
    /// # Errors
    ///
    /// A sentence for the user, where there is no such sample.
    pub fn sample(&self, samples: &[Sample]) -> Result<Option<Sample>, String> {
        let Some(name) = &self.sample else {
            return Ok(samples.first().cloned());
        };
        let found = samples.iter().find(|sample| sample.file == *name);
        found.cloned().map(Some).ok_or_else(|| {
            format!("This page was asked for the sample {name:?}, which is none. Choose another.")
        })
    }

    /// The recorded command that is asked for, if the sample is one.
    pub fn recording(&self, recordings: &[RecordedSample]) -> Option<RecordedSample> {
        let name = self.sample.as_ref()?;
        recordings
            .iter()
            .find(|sample| sample.file == *name)
            .cloned()
    }

    /// The script that is asked for.
    pub fn script(&self) -> Option<&str> {
        self.script.as_deref()
    }
}

/// The address of the whole page, set up as this one; only where this one is embedded.
pub fn whole_page() -> Option<String> {
    let given = given()?;
    given.get(EMBEDDED)?;
    for name in OF_EMBEDDING {
        given.delete(name);
    }
    Some(format!("./?{}", String::from(given.to_string())))
}

fn given() -> Option<UrlSearchParams> {
    let search = window().location().search().ok()?;
    UrlSearchParams::new_with_str(&search).ok()
}

fn limit_of_name(name: &str) -> Option<Limit> {
    let mut limits = Limit::EVIDENCE.into_iter().chain(Limit::AGENT);
    limits.find(|limit| limit.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Parameters {
        Parameters::read(|name| {
            let found = given.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_address_without_parameters_changes_nothing() {
        assert_eq!(read(&[]), Parameters::default());
        assert_eq!(
            read(&[("limits", " "), ("unknown", "1")]),
            Parameters::default()
        );
    }

    #[test]
    fn limits_are_taken_by_their_names() {
        let read = read(&[("limits", "max_inline_bytes=1024 max_steps=many")]);
        assert_eq!(read.limits.get(Limit::MaxInlineBytes), "1024");
        assert_eq!(read.limits.get(Limit::MaxSteps), "many");
        assert_eq!(read.limits.get(Limit::PreviewBytes), "64");
        assert_eq!(read.problems.len(), 0);
    }

    #[test]
    fn what_cannot_be_fulfilled_is_said() {
        let read = read(&[
            ("limits", "max_steps:3 max_bytes=1"),
            ("contract", "C"),
            ("mode", "run"),
        ]);
        assert_eq!(read.limits, LimitInputs::default());
        assert_eq!(read.contract, Contract::RangePaths);
        assert_eq!(read.problems.len(), 3);
        assert!(read.problems[0].contains("\"C\""), "{:?}", read.problems);
        assert!(
            read.problems[1].contains("max_steps:3"),
            "{:?}",
            read.problems
        );
    }

    #[test]
    fn a_sample_is_found_by_its_name_and_the_first_is_taken_without_one() {
        let sample = |file: &str| Sample {
            file: file.to_owned(),
            title: String::new(),
            tool: String::new(),
            byte_count: 1,
            task: String::new(),
            answer: String::new(),
            note: String::new(),
        };
        let list = [sample("a.log"), sample("b.log")];
        assert_eq!(read(&[]).sample(&list), Ok(Some(sample("a.log"))));
        assert_eq!(read(&[]).sample(&[]), Ok(None));
        let second = read(&[("sample", "b.log")]);
        assert_eq!(second.sample(&list), Ok(Some(sample("b.log"))));
        let refusal = read(&[("sample", "c.log")]).sample(&list).unwrap_err();
        assert!(refusal.contains("c.log"), "{refusal}");
    }
}
