//! The checkpoint's chat template.

use evidence_agent::Message;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, ValueKind};
use minijinja::{
    Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value, context,
    escape_formatter,
};
use serde::{Deserialize, Serialize};

/// Why a conversation cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `tokenizer_config.json` is not what it should be.
    #[error("tokenizer_config.json cannot be read: {0}")]
    MalformedConfig(String),
    /// The checkpoint brings no template.
    #[error(
        "the checkpoint has no chat template, neither chat_template.jinja nor in \
         tokenizer_config.json; use one that was tuned for conversations"
    )]
    Missing,
    /// The template is not valid, or refuses this conversation.
    #[error("the chat template refuses: {0}")]
    Refused(String),
    /// The tools are not JSON.
    #[error("the tools are not valid JSON: {0}")]
    MalformedTools(String),
}

/// A compiled chat template.
#[derive(Debug)]
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct TokenizerConfig {
    chat_template: Option<Templates>,
    bos_token: Option<TokenText>,
    eos_token: Option<TokenText>,
}

impl TokenizerConfig {
    pub(crate) fn parse(json: &str) -> Result<Self, TemplateError> {
        serde_json::from_str(json)
            .map_err(|error| TemplateError::MalformedConfig(error.to_string()))
    }

    pub(crate) fn eos_token(&self) -> Option<&str> {
        self.eos_token.as_ref().map(TokenText::text)
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Debug, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TokenText {
    Text(String),
    Token { content: String },
}

impl TokenText {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Token { content: text } => text,
        }
    }
}

const NAME: &str = "chat";

impl ChatTemplate {
    /// Compiles the template of a checkpoint: `chat_template.jinja` where there
    /// is one, otherwise the one in `tokenizer_config.json`.
    pub(crate) fn new(
        jinja: Option<String>,
        config: TokenizerConfig,
    ) -> Result<Self, TemplateError> {
        let source = match (jinja, config.chat_template) {
            (Some(source), _) | (None, Some(Templates::One(source))) => source,
            (None, Some(Templates::Named(templates))) => templates
                .into_iter()
                .find(|template| template.name == "default")
                .map(|template| template.template)
                .ok_or(TemplateError::Missing)?,
            (None, None) => return Err(TemplateError::Missing),
        };
        let mut environment = Environment::new();
        // What transformers sets.
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.map_err(|error| refused(&error))?);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function(
            "raise_exception",
            |message: String| -> Result<Value, Error> {
                Err(Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        environment.add_filter("tojson", to_json);
        environment.set_formatter(format_as_python);
        environment
            .add_template_owned(NAME, source)
            .map_err(|error| refused(&error))?;
        Ok(Self {
            environment,
            bos_token: config.bos_token.map(|token| token.text().to_owned()),
            eos_token: config.eos_token.map(|token| token.text().to_owned()),
        })
    }

    /// Renders a conversation up to where the model's next reply begins.
    ///
    /// `tools` is the JSON of a list of tools, rendered in its own order.
    pub(crate) fn render(
        &self,
        messages: &[Message],
        tools: Option<&str>,
        enable_thinking: bool,
    ) -> Result<String, TemplateError> {
        let tools: Option<Value> = tools
            .map(serde_json::from_str)
            .transpose()
            .map_err(|error| TemplateError::MalformedTools(error.to_string()))?;
        self.environment
            .get_template(NAME)
            .and_then(|template| {
                template.render(context! {
                    messages => Serde(messages),
                    tools => Serde(tools),
                    enable_thinking,
                    add_generation_prompt => true,
                    bos_token => Serde(&self.bos_token),
                    eos_token => Serde(&self.eos_token),
                })
            })
            .map_err(|error| refused(&error))
    }
}

/// Booleans and none as Python prints them.
fn format_as_python(output: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let text = match value.kind() {
        ValueKind::Bool if value.is_true() => "True",
        ValueKind::Bool => "False",
        ValueKind::None => "None",
        _ => return escape_formatter(output, state, value),
    };
    output.write_str(text).map_err(Error::from)
}

fn refused(error: &Error) -> TemplateError {
    TemplateError::Refused(error.to_string())
}

/// JSON as Python writes it: a space after each colon and comma, nothing escaped
/// that need not be.
fn to_json(value: &Value) -> Result<Value, Error> {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, PythonFormatter);
    value
        .serialize(&mut serializer)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Value::from_safe_string(
        String::from_utf8_lossy(&bytes).into_owned(),
    ))
}

struct PythonFormatter;

impl serde_json::ser::Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use evidence_agent::Role;

    use super::*;

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::new(Some(source.to_owned()), TokenizerConfig::default()).unwrap()
    }

    #[test]
    fn python_idioms_of_templates_work() {
        let template = template(
            "{%- set ns = namespace(last=none) -%}
{%- for message in messages[::-1] -%}
{%- if ns.last is none and message.role == 'user' and not message.content.startswith('<') -%}
{%- set ns.last = (messages|length - 1) - loop.index0 -%}
{%- endif -%}
{%- endfor -%}
{{ ns.last }} {{ messages[0].content.split('|')[-1].lstrip('x').upper() }} {{ missing is defined }} {{ none }}",
        );
        let messages = [
            Message::new(Role::User, "a|xxb"),
            Message::new(Role::User, "<c"),
        ];
        assert_eq!(
            template.render(&messages, None, true).unwrap(),
            "0 B False None"
        );
    }

    #[test]
    fn tools_are_written_as_python_writes_them() {
        let rendered = template("{{ tools[0] | tojson }}").render(
            &[],
            Some(r#"[{"z":"<ü>","a":[1,2.5,null,true],"e":{}}]"#),
            true,
        );
        assert_eq!(
            rendered.unwrap(),
            r#"{"z": "<ü>", "a": [1, 2.5, null, true], "e": {}}"#
        );
    }

    #[test]
    fn a_template_may_refuse() {
        let refusing = template("{{ raise_exception('no system message') }}");
        let error = refusing.render(&[], None, true).unwrap_err();
        assert!(error.to_string().contains("no system message"), "{error}");
        assert!(matches!(
            ChatTemplate::new(None, TokenizerConfig::default()),
            Err(TemplateError::Missing)
        ));
        assert!(matches!(
            ChatTemplate::new(Some("{% if %}".to_owned()), TokenizerConfig::default()),
            Err(TemplateError::Refused(_))
        ));
    }
}
