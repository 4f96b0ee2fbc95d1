//! A model as the agent loop wants it.

use std::ops::ControlFlow;

use evidence_agent::{Generator, GeneratorError, Message};

use crate::constraint::ActionSchema;
use crate::model::{Model, Options, Step};

/// Writes the loop's replies with a model.
#[derive(Debug)]
pub struct ModelGenerator {
    model: Model,
    options: Options,
}

impl ModelGenerator {
    /// A generator that replies with these options each time.
    pub fn new(model: Model, options: Options) -> Self {
        Self { model, options }
    }

    /// Holds the replies that follow to `constraint`, or to nothing.
    pub fn constrain(&mut self, constraint: Option<ActionSchema>) {
        self.options.constraint = constraint;
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }
}

impl Generator for ModelGenerator {
    async fn generate(
        &mut self,
        messages: &[Message],
        on_text: &mut dyn FnMut(&str),
    ) -> Result<String, GeneratorError> {
        let mut on_step = |step: &Step| {
            if let Step::Token { text, .. } | Step::Done { text, .. } = step
                && !text.is_empty()
            {
                on_text(text);
            }
            ControlFlow::Continue(())
        };
        self.model
            .generate(messages, &self.options, &mut on_step)
            .await
            .map_err(|error| GeneratorError(error.to_string()))
    }
}
