//! What writes the replies.

use crate::message::Message;

/// The generator cannot write a reply; the run ends with this sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GeneratorError(pub String);

/// A model, a script, or a function of the host.
#[expect(
    async_fn_in_trait,
    reason = "a loop runs on one thread; hosts differ in what is Send"
)]
pub trait Generator {
    /// Writes the reply to `messages`, the whole conversation so far. Pieces of it may be handed to
    /// `on_text` as they come; the returned text is what counts.
    ///
    /// # Errors
    ///
    /// [`GeneratorError`] when there is no reply; the run ends.
    async fn generate(
        &mut self,
        messages: &[Message],
        on_text: &mut dyn FnMut(&str),
    ) -> Result<String, GeneratorError>;
}
