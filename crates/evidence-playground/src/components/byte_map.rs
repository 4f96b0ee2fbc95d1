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
/// A mark is never thinner, or nobody would see sixty bytes of a megabyte.
const MIN_MARK_WIDTH: f64 = 3.0;
/// How many bytes a click chooses.
const CLICK_BYTES: usize = 256;
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
    let id = artifact.descriptor.artifact_id;
    let observed = Memo::new({
        let artifact = Arc::clone(&artifact);
        move |_| artifact.observed(&page.run_limits.get())
    });
    let read = Memo::new(move |_| page.ranges_read(id));
    let choose = {
        let artifact = Arc::clone(&artifact);
        move |wanted: Range<usize>| {
            let chosen = enclosing_range(artifact.text(), wanted);
            page.selection.set(Some((chosen.start, chosen.end)));
        }
    };
    let selection = move || page.selection.get().unwrap_or((0, 0));

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
            viewBox=format!("0 0 {WIDTH} 44")
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
            {move || {
                observed.get().into_iter().map(|segment| mark(&segment, size, 8, 20)).collect_view()
            }}
            {move || {
                read.get().into_iter().map(|segment| mark(&segment, size, 30, 10)).collect_view()
            }}
            {move || {
                let (start, end) = selection();
                (end > start)
                    .then(|| {
                        let (x, width) = extent(&(start..end), size);
                        view! { <rect class="map-selection" x=x y="0" width=width height="44" /> }
                    })
            }}
        </svg>
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

fn mark(segment: &Segment, size: usize, y: i32, height: i32) -> impl IntoView + use<> {
    let (x, width) = extent(&segment.range, size);
    let kind = css_name(segment.kind);
    (!segment.range.is_empty()).then(|| {
        view! { <rect class="map-mark" data-kind=kind x=x y=y width=width height=height /> }
    })
}

/// Where a range is drawn: its left edge and its width.
#[expect(
    clippy::cast_precision_loss,
    reason = "a pixel is coarser than any rounding here"
)]
fn extent(range: &Range<usize>, size: usize) -> (f64, f64) {
    let scale = WIDTH / size.max(1) as f64;
    let width = (range.len() as f64 * scale).max(MIN_MARK_WIDTH);
    ((range.start as f64 * scale).min(WIDTH - width), width)
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
