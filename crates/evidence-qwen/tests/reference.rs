//! The decoder against transformers and MLX, on the small random checkpoints
//! in `fixtures/`, and its key-value cache against itself.

use std::path::PathBuf;
use std::sync::OnceLock;

use evidence_qwen::check::check;
use evidence_qwen::source::Folder;
use evidence_qwen::{Backend, Gpu, Model, Options, Step};
use pollster::block_on;

const CHECKPOINTS: [&str; 8] = [
    "qwen3-f32-tied",
    "qwen3-bf16",
    "qwen2-f16",
    "llama-f32-sharded",
    "llama-bf16-linear",
    "qwen3-mlx-4bit",
    "qwen3-mlx-8bit",
    "qwen2-mlx-mixed",
];

fn folder(name: &str) -> Folder {
    Folder::new(
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(name),
    )
}

/// The adapter of this machine, a software one included.
fn gpu() -> Option<Backend> {
    static GPU: OnceLock<Option<Gpu>> = OnceLock::new();
    let gpu = GPU.get_or_init(|| match block_on(Gpu::connect()) {
        Ok(gpu) => {
            println!("adapter: {:?}", gpu.info());
            Some(gpu)
        }
        Err(error) => {
            println!("{error}");
            None
        }
    });
    gpu.clone().map(Backend::Wgpu)
}

fn backends() -> impl Iterator<Item = Backend> {
    [Some(Backend::Flex), gpu()].into_iter().flatten()
}

fn load(name: &str, backend: &Backend) -> Model {
    block_on(Model::load(&folder(name), backend, &mut |_, _| {}))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_layout_and_format_agrees_with_the_reference() {
    for backend in backends() {
        for name in CHECKPOINTS {
            let mut model = load(name, &backend);
            let report = block_on(check(&mut model, &folder(name))).unwrap();
            println!("{name} on {backend:?}\n{report}");
            assert_eq!(report.comparisons.len(), 6, "{name}");
            assert_eq!(report.failed(), 0, "{name} on {backend:?}\n{report}");
        }
    }
}

/// Greedy tokens after a prompt, and how many of its tokens were computed.
fn greedy(model: &mut Model, tokens: &[u32], count: usize) -> (Vec<u32>, usize) {
    let options = Options {
        max_tokens: count,
        ..Options::default()
    };
    let mut generation = model.continue_tokens(tokens, &options).unwrap();
    let computed = generation.pending_tokens();
    let mut reply = Vec::new();
    loop {
        match block_on(generation.step()).unwrap() {
            Step::Prefill { .. } => {}
            Step::Token { token, .. } => reply.push(token),
            Step::Done { .. } => return (reply, computed),
        }
    }
}

#[test]
fn a_prefix_that_is_known_is_not_computed_again() {
    for backend in backends() {
        let mut model = load("qwen3-f32-tied", &backend);
        let prompt: Vec<u32> = (0..300).map(|index| (index * 37 + 11) % 128).collect();
        let fresh = |model: &mut Model, tokens: &[u32]| {
            model.reset();
            greedy(model, tokens, 6).0
        };
        let longer = fresh(&mut model, &prompt);
        let shorter = fresh(&mut model, &prompt[..140]);
        let mut forked = prompt[..100].to_vec();
        forked.extend([3, 1, 4, 1, 5]);
        let other = fresh(&mut model, &forked);

        // Extended, repeated, cut, forked and extended again.
        model.reset();
        assert_eq!(
            greedy(&mut model, &prompt[..140], 6),
            (shorter.clone(), 140)
        );
        let (reply, computed) = greedy(&mut model, &prompt, 6);
        assert!(
            reply == longer && computed <= 160,
            "{backend:?}: {reply:?} {computed}"
        );
        assert_eq!(greedy(&mut model, &prompt, 6), (longer.clone(), 1));
        assert_eq!(greedy(&mut model, &prompt[..140], 6), (shorter, 1));
        assert_eq!(greedy(&mut model, &forked, 6), (other, 5));
        assert_eq!(greedy(&mut model, &prompt, 6), (longer, 200));
    }
}

#[test]
fn a_continuation_agrees_with_one_long_prefill() {
    for backend in backends() {
        for name in ["qwen3-bf16", "qwen3-mlx-4bit", "llama-f32-sharded"] {
            let mut model = load(name, &backend);
            let prompt: Vec<u32> = (0..20).map(|index| (index * 5 + 2) % 128).collect();
            let (reply, _) = greedy(&mut model, &prompt, 10);
            for at in 1..reply.len() {
                let mut longer = prompt.clone();
                longer.extend(&reply[..at]);
                model.reset();
                let (next, _) = greedy(&mut model, &longer, 1);
                assert_eq!(next, reply[at..=at], "{name} on {backend:?} at {at}");
            }
        }
    }
}
