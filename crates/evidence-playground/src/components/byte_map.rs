use std::ops::Range;
use std::sync::Arc;

use evidence_core::range::enclosing_range;
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::{Element, KeyboardEvent, PointerEvent};

use crate::artifacts::{Artifact, Segment, SegmentKind};
use crate::state::Playground;
use crate::text::range;

/// The width of the drawing in its own units.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 44.0;
/// A mark is never thinner, or nobody would see sixty bytes of a megabyte.
const MIN_MARK_WIDTH: f64 = 3.0;
/// How many bytes a click chooses.
const CLICK_BYTES: usize = 256;
/// How many selections the magnified part is wide, and at least how many bytes.
const MAGNIFIED_SELECTIONS: usize = 6;
const MIN_MAGNIFIED_BYTES: usize = 512;
/// A pointer that moved less did not drag.
const DRAG_PIXELS: f64 = 4.0;
/// How many selections a page key moves by.
const PAGE_FACTOR: usize = 16;

/// Draws an artifact to scale: what the observation showed and left out, what was read since, and
/// what is looked at. Bytes are chosen by pointer, by arrow keys, or by the list below it.
#[component]
pub fn ByteMap(
    /// The artifact.
    artifact: Arc<Artifact>,
) -> impl IntoView {
    let page = Playground::of_page();
    let size = artifact.bytes.len();
    let key = artifact.key.clone();
    let observed = Memo::new({
        let artifact = Arc::clone(&artifact);
        move |_| artifact.observed(&page.run_limits.get())
    });
    let read = Memo::new(move |_| page.ranges_read(&key));
    let choose = {
        let artifact = Arc::clone(&artifact);
        move |wanted: Range<usize>| {
            let chosen = enclosing_range(artifact.text(), wanted);
            page.selection.set(Some((chosen.start, chosen.end)));
        }
    };
    let selection = move || page.selection.get().unwrap_or((0, 0));
    let selected = move || {
        let (start, end) = selection();
        start..end
    };

    // Where a drag began: its position in the drawing and in the artifact.
    let anchor = RwSignal::new(None::<(f64, usize)>);
    let begin = move |event: PointerEvent| {
        let map: Element = event_current_target(&event);
        // The drag goes on outside of the map.
        let _ = map.set_pointer_capture(event.pointer_id());
        anchor.set(Some((
            event.client_x().into(),
            position(&event, &map, size),
        )));
    };
    let drag = {
        let choose = choose.clone();
        move |event: PointerEvent| {
            let Some((from_x, from)) = anchor.get_untracked() else {
                return;
            };
            if (f64::from(event.client_x()) - from_x).abs() >= DRAG_PIXELS {
                let to = position(&event, &event_current_target(&event), size);
                choose(from.min(to)..from.max(to));
            }
        }
    };
    let end = {
        let choose = choose.clone();
        move |event: PointerEvent| {
            let Some((from_x, at)) = anchor.get_untracked() else {
                return;
            };
            anchor.set(None);
            if (f64::from(event.client_x()) - from_x).abs() < DRAG_PIXELS {
                let start = at
                    .saturating_sub(CLICK_BYTES / 2)
                    .min(size.saturating_sub(CLICK_BYTES));
                choose(start..start + CLICK_BYTES);
            }
        }
    };
    let key = {
        let choose = choose.clone();
        move |event: KeyboardEvent| {
            let (start, end) = selection();
            let length = if end > start {
                end - start
            } else {
                CLICK_BYTES
            };
            let last = size.saturating_sub(length);
            let start = match event.key().as_str() {
                "ArrowLeft" | "ArrowDown" => start.saturating_sub(length),
                "ArrowRight" | "ArrowUp" => (start + length).min(last),
                "PageUp" => start.saturating_sub(length * PAGE_FACTOR),
                "PageDown" => (start + length * PAGE_FACTOR).min(last),
                "Home" => 0,
                "End" => last,
                _ => return,
            };
            event.prevent_default();
            choose(start..start + length);
        }
    };
    let segments = move || {
        let mut segments = observed.get();
        segments.extend(read.get());
        segments.retain(|segment| !segment.range.is_empty());
        segments
    };
    view! {
        <svg
            class="byte-map"
            viewBox=format!("0 0 {WIDTH} {HEIGHT}")
            preserveAspectRatio="none"
            role="slider"
            tabindex="0"
            aria-label="Selected bytes; arrow keys move the selection"
            aria-valuemin="0"
            aria-valuemax=size
            aria-valuenow=move || selection().0
            aria-valuetext=move || {
                let (start, end) = selection();
                format!("bytes {} of {size}", range(start, end))
            }
            on:pointerdown=begin
            on:pointermove=drag
            on:pointerup=end
            on:keydown=key
        >
            {move || lanes(&segments(), &selected(), &(0..size))}
        </svg>
        <Magnified artifact_bytes=size segments=Signal::derive(segments) />
        <ul class="legend" aria-label="Parts of the artifact">
            {move || {
                segments()
                    .into_iter()
                    .map(|segment| {
                        let choose = choose.clone();
                        let Range { start, end } = segment.range;
                        view! {
                            <li>
                                <button
                                    type="button"
                                    class="legend-entry"
                                    data-kind=css_name(segment.kind)
                                    aria-pressed=move || (selection() == (start, end)).to_string()
                                    on:click=move |_| choose(start..end)
                                >
                                    <span class="swatch" aria-hidden="true"></span>
                                    <span>{label(segment.kind)}</span>
                                    <span class="figure">{range(start, end)}</span>
                                </button>
                            </li>
                        }
                    })
                    .collect_view()
            }}
        </ul>
    }
}

/// The same bytes around the selection, large enough to see small marks side by side.
#[component]
fn Magnified(artifact_bytes: usize, segments: Signal<Vec<Segment>>) -> impl IntoView {
    let page = Playground::of_page();
    let window = Memo::new(move |_| {
        let (start, end) = page.selection.get()?;
        let length = (end - start)
            .saturating_mul(MAGNIFIED_SELECTIONS)
            .max(MIN_MAGNIFIED_BYTES);
        // Where most of the artifact is selected, there is nothing to magnify.
        if length * 2 > artifact_bytes {
            return None;
        }
        let first = (start + (end - start) / 2).saturating_sub(length / 2);
        let first = first.min(artifact_bytes - length);
        Some(first..first + length)
    });
    move || {
        window.get().map(|window| {
            let (start, end) = page.selection.get().unwrap_or_default();
            view! {
                <div class="magnified" aria-hidden="true">
                    <svg viewBox=format!("0 0 {WIDTH} {HEIGHT}") preserveAspectRatio="none">
                        {lanes(&segments.get(), &(start..end), &window)}
                    </svg>
                    <p class="hint">
                        {format!("Magnified: bytes {}", range(window.start, window.end))}
                    </p>
                </div>
            }
        })
    }
}

/// Draws `window` of the artifact: the selection, what the observation showed and left out, and what
/// was read since, one below the other.
fn lanes(
    segments: &[Segment],
    selection: &Range<usize>,
    window: &Range<usize>,
) -> impl IntoView + use<> {
    let marks = segments
        .iter()
        .filter_map(|segment| {
            let (x, width) = extent(&segment.range, window)?;
            let (y, height) = match segment.kind {
                SegmentKind::Head | SegmentKind::Omitted | SegmentKind::Tail => (10, 18),
                SegmentKind::Read(_) => (30, 10),
            };
            let kind = css_name(segment.kind);
            Some(view! { <rect class="map-mark" data-kind=kind x=x y=y width=width height=height /> })
        })
        .collect_view();
    let selection = extent(selection, window).map(|(x, width)| {
        view! {
            <rect class="map-shade" x=x y="0" width=width height=HEIGHT />
            <rect class="map-selection" x=x y="2" width=width height="6" />
        }
    });
    (marks, selection)
}

/// Where a range is drawn in a window of the artifact: its left edge and its width; none when it
/// lies outside or has no bytes.
#[expect(
    clippy::cast_precision_loss,
    reason = "a pixel is coarser than any rounding here"
)]
fn extent(range: &Range<usize>, window: &Range<usize>) -> Option<(f64, f64)> {
    let start = range.start.max(window.start);
    let end = range.end.min(window.end);
    if start >= end {
        return None;
    }
    let scale = WIDTH / window.len() as f64;
    let width = ((end - start) as f64 * scale).max(MIN_MARK_WIDTH);
    let left = (start - window.start) as f64 * scale;
    Some((left.min(WIDTH - width), width))
}

/// The byte under the pointer.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the fraction is between 0 and 1, and a pixel is coarser than any rounding here"
)]
fn position(event: &PointerEvent, map: &Element, size: usize) -> usize {
    let bounds = map.get_bounding_client_rect();
    let fraction = (f64::from(event.client_x()) - bounds.left()) / bounds.width().max(1.0);
    (fraction.clamp(0.0, 1.0) * size as f64) as usize
}

fn label(kind: SegmentKind) -> String {
    match kind {
        SegmentKind::Head => "Head preview".to_owned(),
        SegmentKind::Omitted => "Omitted".to_owned(),
        SegmentKind::Tail => "Tail preview".to_owned(),
        SegmentKind::Read(step) => format!("Read in step {step}"),
    }
}

fn css_name(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Head => "head",
        SegmentKind::Omitted => "omitted",
        SegmentKind::Tail => "tail",
        SegmentKind::Read(_) => "read",
    }
}

/// The element that the listener is on, whatever inside of it was hit.
fn event_current_target(event: &PointerEvent) -> Element {
    event
        .current_target()
        .map_or_else(|| event_target(event), JsCast::unchecked_into)
}
