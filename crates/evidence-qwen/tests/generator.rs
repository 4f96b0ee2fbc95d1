//! The agent loop driven by a model: whatever a model that was never trained
//! says, a constrained one speaks in actions.

use std::path::PathBuf;

use evidence_agent::{Action, Generator, Message, Role, ToolName};
use evidence_qwen::constraint::ActionSchema;
use evidence_qwen::source::Folder;
use evidence_qwen::{Backend, Model, ModelGenerator, Options};
use pollster::block_on;

#[test]
fn a_generator_hands_out_its_reply_piece_by_piece() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3-chat");
    let model = block_on(Model::load(
        &Folder::new(folder),
        &Backend::Flex,
        &mut |_, _| {},
    ))
    .unwrap();
    let options = Options {
        max_tokens: 40,
        constraint: Some(ActionSchema::for_tools(&[ToolName::ReadFile])),
        ..Options::default()
    };
    let mut generator = ModelGenerator::new(model, options);
    let messages = [Message::new(Role::User, "Read a.txt.")];
    let mut pieces = String::new();
    let reply = block_on(generator.generate(&messages, &mut |text| pieces.push_str(text))).unwrap();
    assert_eq!(reply, pieces);
    assert!(reply.starts_with('{'), "{reply}");
    assert!(generator.model().info().context_tokens > 0);
    if reply.ends_with('}') {
        Action::parse(&reply, Some(&[ToolName::ReadFile])).unwrap();
    }
}
