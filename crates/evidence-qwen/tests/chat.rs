//! Template, tokenizer and constrained decoding, with Qwen3's template and a
//! tokenizer that keeps its rules and its first merges.

use std::ops::ControlFlow;
use std::path::PathBuf;

use evidence_agent::action::{Action, ToolName};
use evidence_agent::{Message, Role};
use evidence_qwen::check::{Subject, check};
use evidence_qwen::constraint::ActionSchema;
use evidence_qwen::sampling::Sampling;
use evidence_qwen::source::Folder;
use evidence_qwen::{Backend, Finish, Model, Options, Step};
use pollster::block_on;

fn folder() -> Folder {
    Folder::new(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3-chat"))
}

fn load() -> Model {
    block_on(Model::load(&folder(), &Backend::Flex, &mut |_, _| {})).unwrap()
}

#[test]
fn conversations_are_rendered_and_encoded_as_by_transformers() {
    let report = block_on(check(&mut load(), &folder())).unwrap();
    let count = |wanted: fn(&Subject) -> bool| {
        report
            .comparisons
            .iter()
            .filter(|comparison| wanted(&comparison.subject))
            .count()
    };
    assert_eq!(
        count(|subject| matches!(subject, Subject::Rendered { .. })),
        20
    );
    assert_eq!(
        count(|subject| matches!(subject, Subject::Tokens { .. })),
        21
    );
    assert_eq!(report.failed(), 0, "{report}");
}

#[test]
fn the_authors_sampling_is_offered() {
    let sampling = load().default_sampling().unwrap();
    assert_eq!((sampling.top_k, sampling.top_p), (20, 0.95));
}

/// A model that was never trained says anything, so what is an action is the
/// constraint's doing.
#[test]
fn a_constrained_reply_is_an_action() {
    let mut model = load();
    let messages = [Message::new(Role::User, "Fix it.")];
    let tools = [
        ToolName::ListFiles,
        ToolName::EditFile,
        ToolName::RunCommand,
    ];
    let mut complete = 0;
    for seed in 0..30 {
        let options = Options {
            sampling: Sampling {
                temperature: 1.0,
                seed,
                ..Sampling::GREEDY
            },
            max_tokens: 300,
            constraint: Some(ActionSchema::for_tools(&tools)),
            ..Options::default()
        };
        let mut finish = None;
        let reply = block_on(model.generate(&messages, &options, &mut |step| {
            if let Step::Done { finish: reason, .. } = step {
                finish = Some(*reason);
            }
            ControlFlow::Continue(())
        }))
        .unwrap();
        if finish == Some(Finish::Stop) {
            Action::parse(&reply, Some(&tools)).unwrap_or_else(|error| panic!("{error}: {reply}"));
            complete += 1;
        }
    }
    assert!(
        complete >= 5,
        "only {complete} of 30 replies came to an end"
    );
}

#[test]
fn a_reply_stops_within_one_token_and_goes_on_from_what_is_known() {
    let mut model = load();
    let messages = [Message::new(Role::User, "Count.")];
    let options = Options {
        max_tokens: 20,
        ..Options::default()
    };
    let mut generation = model.reply(&messages, &options).unwrap();
    let prompt_tokens = generation.prompt_tokens();
    assert_eq!(generation.pending_tokens(), prompt_tokens);
    for _ in 0..4 {
        block_on(generation.step()).unwrap();
    }
    drop(generation);
    assert_eq!(
        model.reply(&messages, &options).unwrap().pending_tokens(),
        1
    );
    let mut tokens = 0;
    let stopped = block_on(model.generate(&messages, &options, &mut |step| {
        tokens += usize::from(matches!(step, Step::Token { .. }));
        if tokens == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }));
    assert!(stopped.is_err() && tokens == 3, "{stopped:?} {tokens}");
}

#[test]
fn the_same_seed_gives_the_same_reply() {
    let mut model = load();
    let messages = [Message::new(Role::User, "Go.")];
    let mut reply = |seed| {
        let options = Options {
            sampling: Sampling {
                temperature: 0.8,
                top_p: 0.9,
                repetition_penalty: 1.1,
                seed,
                ..Sampling::GREEDY
            },
            max_tokens: 20,
            ..Options::default()
        };
        block_on(model.generate(&messages, &options, &mut |_| ControlFlow::Continue(()))).unwrap()
    };
    assert_eq!(reply(1), reply(1));
    assert_ne!(reply(1), reply(2));
}
