//! Counters in the text format of Prometheus. Labels are words of this program alone: no content, no
//! address and no credential can become one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evidence_agent::endpoint::{Response, Route};

/// The upper bounds of the histogram's buckets, in seconds.
const BUCKETS: [(&str, Duration); 8] = [
    ("0.001", Duration::from_millis(1)),
    ("0.0025", Duration::from_micros(2500)),
    ("0.01", Duration::from_millis(10)),
    ("0.025", Duration::from_millis(25)),
    ("0.1", Duration::from_millis(100)),
    ("0.25", Duration::from_millis(250)),
    ("1", Duration::from_secs(1)),
    ("10", Duration::from_secs(10)),
];

/// What has been answered since the start.
#[derive(Default)]
pub struct Metrics {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    responses: BTreeMap<(Route, u16, &'static str), u64>,
    seconds: BTreeMap<Route, Histogram>,
    received_bytes: u64,
    sent_bytes: u64,
}

#[derive(Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: Duration,
}

impl Metrics {
    /// Counts a response.
    pub fn count(&self, response: &Response, received_bytes: usize, elapsed: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let code = response.code.map_or("", |code| code.as_str());
        let key = (response.route, response.status, code);
        *counts.responses.entry(key).or_default() += 1;
        counts.received_bytes += received_bytes as u64;
        counts.sent_bytes += response.body.len() as u64;
        let histogram = counts.seconds.entry(response.route).or_default();
        histogram.count += 1;
        histogram.sum += elapsed;
        for (bucket, (_, bound)) in histogram.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(elapsed <= bound);
        }
    }

    /// The text that a scraper reads.
    pub fn render(&self) -> String {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = counts.write_to(&mut text);
        text
    }
}

impl Counts {
    fn write_to(&self, text: &mut String) -> std::fmt::Result {
        let responses = "bounded_evidence_responses_total";
        writeln!(
            text,
            "# HELP {responses} Responses by route, status and code."
        )?;
        writeln!(text, "# TYPE {responses} counter")?;
        for ((route, status, code), count) in &self.responses {
            let route = route.as_str();
            writeln!(
                text,
                "{responses}{{route=\"{route}\",status=\"{status}\",code=\"{code}\"}} {count}"
            )?;
        }
        for (name, help, bytes) in [
            (
                "bounded_evidence_received_bytes_total",
                "Bytes of request bodies.",
                self.received_bytes,
            ),
            (
                "bounded_evidence_sent_bytes_total",
                "Bytes of response bodies.",
                self.sent_bytes,
            ),
        ] {
            writeln!(
                text,
                "# HELP {name} {help}\n# TYPE {name} counter\n{name} {bytes}"
            )?;
        }
        let seconds = "bounded_evidence_response_seconds";
        writeln!(
            text,
            "# HELP {seconds} Time from a request's headers to its response."
        )?;
        writeln!(text, "# TYPE {seconds} histogram")?;
        for (route, histogram) in &self.seconds {
            let route = route.as_str();
            let Histogram {
                buckets,
                count,
                sum,
            } = histogram;
            for (bucket, (bound, _)) in buckets.iter().zip(BUCKETS) {
                writeln!(
                    text,
                    "{seconds}_bucket{{route=\"{route}\",le=\"{bound}\"}} {bucket}"
                )?;
            }
            let sum = sum.as_secs_f64();
            writeln!(
                text,
                "{seconds}_bucket{{route=\"{route}\",le=\"+Inf\"}} {count}"
            )?;
            writeln!(text, "{seconds}_sum{{route=\"{route}\"}} {sum}")?;
            writeln!(text, "{seconds}_count{{route=\"{route}\"}} {count}")?;
        }
        Ok(())
    }
}
