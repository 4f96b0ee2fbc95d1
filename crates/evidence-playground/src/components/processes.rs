use evidence_agent::process::{ProcessOutput, ProcessView};
use evidence_core::ProcessId;
use evidence_core::process::{ProcessStatus, Stream, StreamFacts};
use leptos::html;
use leptos::prelude::*;

use crate::browser;
use crate::processes::Watched;
use crate::state::Playground;
use crate::text::{counted, grouped};

/// The width of a stream's drawing in its own units.
const WIDTH: f64 = 1000.0;
/// A mark is never thinner, or nobody would see sixty bytes of a megabyte.
const MIN_MARK_WIDTH: f64 = 3.0;
/// How much of a stream's end is shown.
const TAIL_BYTES: usize = 4000;

/// The processes of the run: what they write as they write it, and how far the model has read.
#[component]
pub fn Processes() -> impl IntoView {
    let page = Playground::of_page();
    let ids = Memo::new(move |_| {
        page.processes.with(|processes| {
            let ids = processes.iter().map(|process| process.id.clone());
            ids.collect::<Vec<_>>()
        })
    });
    view! {
        <For
            each=move || ids.get()
            key=ProcessId::to_string
            children=move |id| view! { <Process id /> }
        />
    }
}

#[component]
fn Process(id: ProcessId) -> impl IntoView {
    let page = Playground::of_page();
    let heading = format!("heading-{id}");
    let process = {
        let id = id.clone();
        Memo::new(move |_| {
            page.processes
                .with(|processes| processes.iter().find(|process| process.id == id).cloned())
        })
    };
    let is_running = Memo::new(move |_| {
        process.with(|process| process.as_ref().is_some_and(Watched::is_running))
    });
    let standing = move || process.with(|process| process.as_ref().map(standing));
    let command = process.with_untracked(|process| {
        let argv = process.as_ref().map(|process| process.argv.join(" "));
        argv.unwrap_or_default()
    });
    let stop = move |_| {
        if let Some(process) = process.get_untracked() {
            page.stop_process(process.job, process.id);
        }
    };
    let title = NodeRef::<html::H3>::new();
    // Whether the button had the focus last: by the time that it is hidden the browser has taken it away.
    let had_focus = StoredValue::new(false);
    Effect::new(move || {
        if !is_running.get() && had_focus.get_value() {
            browser::recover_focus(move || title.get_untracked().map(Into::into));
        }
    });
    let labelled_by = heading.clone();
    view! {
        <section class="process" aria-labelledby=labelled_by data-running=move || is_running.get().to_string()>
            <div class="process-head">
                <h3 id=heading tabindex="-1" node_ref=title>
                    {id.to_string()}
                </h3>
                <span class="badge" role="status">
                    {standing}
                </span>
                <button
                    type="button"
                    hidden=move || !is_running.get()
                    on:focus=move |_| had_focus.set_value(true)
                    on:blur=move |event| had_focus.set_value(event.related_target().is_none())
                    on:click=stop
                >
                    "Stop"
                </button>
            </div>
            <p class="command">
                <code>{command}</code>
            </p>
            {[Stream::Stdout, Stream::Stderr]
                .map(|stream| view! { <StreamView process stream id=id.clone() /> })
                .collect_view()}
            <p class="hint">{move || process.with(|process| process.as_ref().and_then(captured))}</p>
        </section>
    }
}

/// Where a process stands, in a few words.
fn standing(process: &Watched) -> String {
    let seconds = |ran_ms: u64| format!("{}.{} s", ran_ms / 1000, ran_ms % 1000 / 100);
    if process.is_deleted {
        return "deleted".to_owned();
    }
    let Some(ProcessView { status, output }) = &process.view else {
        return "starting".to_owned();
    };
    match (status, output) {
        (ProcessStatus::Running, _) => format!("running, {}", seconds(process.ran_ms)),
        (ProcessStatus::Exited, Some(ProcessOutput { facts, .. })) => match facts.exit_code {
            Some(code) => format!("exit code {code}"),
            None => "exited".to_owned(),
        },
        (status, _) => status.as_str().to_owned(),
    }
}

/// What is said of its captures.
fn captured(process: &Watched) -> Option<&'static str> {
    if process.is_deleted {
        return Some("It was ended and deleted with all that its run kept.");
    }
    let view = process.view.as_ref()?;
    Some(match (&view.output, view.status) {
        (Some(_), ProcessStatus::Running) => {
            "In memory until it ends: then both streams are stored, before anybody is told that it ended."
        }
        (Some(_), _) => "Both streams are stored. Their captures are listed with the artifacts.",
        (None, _) => {
            "What it wrote is not stored (any more). What the model saw of it stays as it is."
        }
    })
}

#[component]
fn StreamView(process: Memo<Option<Watched>>, stream: Stream, id: ProcessId) -> impl IntoView {
    let page = Playground::of_page();
    let name = stream.as_str();
    let facts = Memo::new(move |_| {
        process.with(|process| {
            let view = process.as_ref()?.view.as_ref()?;
            Some(*view.output.as_ref()?.facts.stream(stream))
        })
    });
    let tail = move || {
        process.with(|process| {
            let output = process.as_ref()?.view.as_ref()?.output.as_ref()?;
            let bytes = match stream {
                Stream::Stdout => &output.stdout,
                Stream::Stderr => &output.stderr,
            };
            let tail = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
            // Whole lines, where there are some.
            let start = match tail.iter().position(|byte| *byte == b'\n') {
                Some(at) if tail.len() < bytes.len() => at + 1,
                _ => 0,
            };
            Some(String::from_utf8_lossy(&tail[start..]).into_owned())
        })
    };
    let seen = Memo::new(move |_| {
        page.steps.with(|steps| {
            let observed = steps.iter().filter_map(|step| step.observed.as_ref());
            let of_this = observed.filter(|observed| observed.process_id == id);
            let ranges = of_this.flat_map(|observed| match stream {
                Stream::Stdout => &observed.stdout,
                Stream::Stderr => &observed.stderr,
            });
            let ranges = ranges.copied().filter(|[start, end]| start < end);
            ranges.collect::<Vec<_>>()
        })
    });
    let sizes = move || {
        facts.get().map(|facts| {
            let size = counted(position(facts.bytes), "byte");
            if facts.capture_truncated() {
                format!(
                    "{size}, the first of {}",
                    grouped(position(facts.total_bytes))
                )
            } else {
                size
            }
        })
    };
    let cursor = move || match seen.get().last() {
        None => "the model has seen nothing of it".to_owned(),
        Some([_, end]) => {
            let seen = counted(position(distinct(&seen.get())), "byte");
            format!(
                "the model has seen {seen}, at last up to {}",
                grouped(position(*end))
            )
        }
    };
    view! {
        <div class="stream">
            <div class="stream-head">
                <span class="stream-name">{name}</span>
                <span class="figure">{sizes}</span>
                <span class="hint">{cursor}</span>
            </div>
            <svg
                class="stream-map"
                viewBox=format!("0 0 {WIDTH} 10")
                preserveAspectRatio="none"
                role="img"
                aria-label=format!("What the model has seen of {name}")
            >
                {move || marks(facts.get().as_ref(), &seen.get())}
            </svg>
            <div class="stream-tail" tabindex="0" role="group" aria-label=format!("The end of {name}")>
                <pre class="exact">{tail}</pre>
            </div>
        </div>
    }
}

/// Marks each range at its place in the stream.
#[expect(
    clippy::cast_precision_loss,
    reason = "a pixel is coarser than any rounding here"
)]
fn marks(facts: Option<&StreamFacts>, seen: &[[u64; 2]]) -> impl IntoView + use<> {
    let scale = WIDTH / facts.map_or(1, |facts| facts.bytes.max(1)) as f64;
    let mark = |[start, end]: &[u64; 2]| {
        let width = ((end - start) as f64 * scale).max(MIN_MARK_WIDTH);
        let x = (*start as f64 * scale).min(WIDTH - width);
        view! { <rect class="map-mark" data-kind="read" x=x y="0" width=width height="10" /> }
    };
    seen.iter().map(mark).collect_view()
}

/// How many bytes the ranges cover together.
fn distinct(ranges: &[[u64; 2]]) -> u64 {
    let mut ranges = ranges.to_vec();
    ranges.sort_unstable();
    let mut covered = 0;
    let mut reached = 0;
    for [start, end] in ranges {
        covered += end.saturating_sub(start.max(reached));
        reached = reached.max(end);
    }
    covered
}

fn position(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_seen_twice_count_once() {
        assert_eq!(distinct(&[]), 0);
        assert_eq!(distinct(&[[0, 4], [2, 6], [10, 12], [0, 1]]), 8);
    }
}
