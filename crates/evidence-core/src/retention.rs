//! When stored bytes expire (contract B, retention), as pure plans: facts and a time in, what is to be
//! deleted out.
//!
//! A plan deletes late rather than early. What it cannot know (a job whose record is gone or cannot
//! be read) it keeps.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// How long the complete captured output of a process is kept after its end: 24 hours.
pub const CAPTURE_LIFETIME_MS: u64 = 24 * 60 * 60 * 1000;
/// How long artifacts are kept after their job became terminal and inactive: 7 days.
pub const ARTIFACT_LIFETIME_MS: u64 = 7 * CAPTURE_LIFETIME_MS;
/// The most jobs that one sweep collects.
pub const MAX_SWEPT_JOBS: usize = 64;

/// What is known of the job that owns some artifacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerState {
    /// It takes tool results, or one of its processes runs.
    Active,
    /// It ended, and so did its processes; at the latest of these times (milliseconds since 1970).
    Inactive {
        /// Since when.
        since_ms: u64,
    },
    /// Its record is there and cannot be read.
    Unknown,
    /// Its record is not there.
    Missing,
}

/// The jobs whose artifacts have expired at `now_ms`, those that ended first before the others, and at
/// most [`MAX_SWEPT_JOBS`]. Jobs that keep theirs use nothing of that budget.
pub fn expired_jobs<J: Ord>(
    now_ms: u64,
    owners: impl IntoIterator<Item = (J, OwnerState)>,
) -> Vec<J> {
    let mut expired: Vec<(u64, J)> = owners
        .into_iter()
        .filter_map(|(job, state)| match state {
            OwnerState::Inactive { since_ms }
                if has_passed(now_ms, since_ms, ARTIFACT_LIFETIME_MS) =>
            {
                Some((since_ms, job))
            }
            _ => None,
        })
        .collect();
    expired.sort_unstable();
    expired.truncate(MAX_SWEPT_JOBS);
    expired.into_iter().map(|(_, job)| job).collect()
}

/// Whether a capture of a process that ended at `ended_at_ms` has expired at `now_ms`.
pub const fn is_capture_expired(now_ms: u64, ended_at_ms: u64) -> bool {
    has_passed(now_ms, ended_at_ms, CAPTURE_LIFETIME_MS)
}

const fn has_passed(now_ms: u64, since_ms: u64, lifetime_ms: u64) -> bool {
    match since_ms.checked_add(lifetime_ms) {
        Some(expires_ms) => now_ms >= expires_ms,
        None => false,
    }
}

/// The time that retention goes by, as it is recorded from sweep to sweep.
///
/// The host's clock can be set. So the time here never goes backwards, and inside one host it goes
/// forward by at most what the host's monotonic clock has counted: a clock that jumps a day ahead
/// makes nothing a day older. When a host begins it has nothing but the clock to go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionClock {
    wall_ms: u64,
    now_ms: u64,
}

impl RetentionClock {
    /// The time after the host's clock showed `wall_ms` (milliseconds since 1970).
    ///
    /// `limit_ms` is how far it can have got: the time at this host's last sweep and what its monotonic
    /// clock has counted since. `previous` may be another host's, which has counted the same hours. No
    /// limit is known at a host's first sweep, and when the time is given by an operator.
    #[must_use]
    pub fn advance(previous: Option<Self>, wall_ms: u64, limit_ms: Option<u64>) -> Self {
        let now_ms = match (previous, limit_ms) {
            (None, _) => wall_ms,
            (Some(previous), None) => previous.now_ms.max(wall_ms),
            (Some(previous), Some(limit_ms)) => {
                let passed = wall_ms.saturating_sub(previous.wall_ms);
                let now_ms = previous.now_ms.saturating_add(passed);
                now_ms.min(limit_ms).max(previous.now_ms)
            }
        };
        Self { wall_ms, now_ms }
    }

    /// The time, in milliseconds since 1970.
    pub const fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// The time to record of something that ends when the host's clock shows `wall_ms`: never before
    /// the time that retention has reached, or a clock that was set back would make it expire early.
    pub fn stamp(clock: Option<Self>, wall_ms: u64) -> u64 {
        clock.map_or(wall_ms, |clock| clock.now_ms.max(wall_ms))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = CAPTURE_LIFETIME_MS;

    #[test]
    fn captures_live_24_hours() {
        assert!(!is_capture_expired(DAY - 1, 0));
        assert!(is_capture_expired(DAY, 0));
        assert!(!is_capture_expired(0, DAY), "before it ended");
        assert!(!is_capture_expired(u64::MAX, u64::MAX));
    }

    #[test]
    fn artifacts_expire_7_days_after_their_job_became_terminal_and_inactive() {
        let at = |since_ms| OwnerState::Inactive { since_ms };
        let owners: [(u64, OwnerState); 3] = [(1, at(0)), (2, at(1)), (3, at(u64::MAX))];
        assert_eq!(expired_jobs(7 * DAY - 1, owners), Vec::<u64>::new());
        assert_eq!(expired_jobs(7 * DAY, owners), vec![1]);
        assert_eq!(expired_jobs(u64::MAX, owners), vec![1, 2]);
    }

    #[test]
    fn active_unknown_and_missing_jobs_keep_theirs_and_use_none_of_the_budget_of_64() {
        let kept = [OwnerState::Active, OwnerState::Unknown, OwnerState::Missing];
        let mut owners: Vec<(u64, OwnerState)> = (0..192)
            .map(|job| (job, kept[usize::try_from(job).unwrap() % 3]))
            .collect();
        owners.extend((0..65).map(|job| (1000 + job, OwnerState::Inactive { since_ms: 65 - job })));
        let mut sweep = || {
            let expired = expired_jobs(8 * DAY, owners.iter().copied());
            owners.retain(|(job, _)| !expired.contains(job));
            expired
        };
        let first = sweep();
        assert_eq!(first.len(), 64);
        assert_eq!(first[0], 1064, "the first to end is the first to go");
        assert_eq!(sweep(), vec![1000]);
        assert_eq!(sweep(), Vec::<u64>::new());
        assert_eq!(owners.len(), 192);
    }

    #[test]
    fn a_clock_that_jumps_a_day_forwards_or_backwards_deletes_nothing_early() {
        let start = RetentionClock::advance(None, 100 * DAY, None);
        let minute = 60_000;
        let a_minute_on = |clock: RetentionClock, wall_ms| {
            RetentionClock::advance(Some(clock), wall_ms, Some(clock.now_ms() + minute))
        };
        let ahead = a_minute_on(start, 101 * DAY);
        assert_eq!(ahead.now_ms(), 100 * DAY + minute);
        let back = a_minute_on(ahead, 100 * DAY + 2 * minute);
        assert_eq!(back.now_ms(), ahead.now_ms());
        let on = a_minute_on(back, 100 * DAY + 3 * minute);
        assert_eq!(on.now_ms(), 100 * DAY + 2 * minute);
        // Set back by a day: what ends now must not look a day old already.
        let set_back = a_minute_on(on, 99 * DAY);
        assert_eq!(RetentionClock::stamp(Some(set_back), 99 * DAY), on.now_ms());
        assert_eq!(RetentionClock::stamp(None, 5), 5);
        // Another host: the clock is all there is.
        let restarted = RetentionClock::advance(Some(set_back), 107 * DAY, None);
        assert_eq!(restarted.now_ms(), 107 * DAY);
    }

    #[test]
    fn two_hosts_do_not_count_the_same_hours_twice() {
        let start = RetentionClock::advance(None, 100 * DAY, None);
        // Both have swept at the start and sweep again half a day later, with a clock that jumps
        // between the two.
        let limit_ms = 100 * DAY + DAY / 2;
        let one = RetentionClock::advance(Some(start), 101 * DAY, Some(limit_ms));
        let other = RetentionClock::advance(Some(one), 102 * DAY, Some(limit_ms));
        assert_eq!(other.now_ms(), limit_ms);
        assert!(!is_capture_expired(other.now_ms(), 100 * DAY));
    }

    proptest! {
        #[test]
        fn the_time_is_never_ahead_of_what_has_really_passed(
            steps in prop::collection::vec((0_u64..10 * DAY, 0_u64..DAY, 0_usize..3), 0..50),
        ) {
            let mut real = 50 * DAY;
            let mut clock = RetentionClock::advance(None, real, None);
            // What the time was at the last sweep of each of three hosts, and when that really was.
            let mut hosts = [(clock.now_ms(), real); 3];
            for (wall_ms, elapsed_ms, host) in steps {
                let before = clock.now_ms();
                real += elapsed_ms;
                let (last_ms, at) = hosts[host];
                let limit_ms = Some(last_ms + (real - at));
                clock = RetentionClock::advance(Some(clock), 45 * DAY + wall_ms, limit_ms);
                hosts[host] = (clock.now_ms(), real);
                prop_assert!(before <= clock.now_ms() && clock.now_ms() <= real);
            }
        }
    }
}
