//! When `healthy` is found, what proves it, and what to change.

use crate::facts::{FactId, Facts, fact_ids};
use crate::limits::LimitId;
use crate::limits::ceilings;
use crate::limits::healthy::response_time::is_below;
use crate::limits::healthy::room::{CPU_FRACTION_MAX, FULL_FRACTION_MAX, has_room};
use crate::limits::healthy::{hidden_queues, response_time};
use crate::resources::slow_responses;
use crate::wording::format_number;
use webdyno_model::diagnosis::Finding;
use webdyno_model::number::significant;

/// Of responses that take long nobody knows whether they would take as long alone, nor where the time goes.
const CONFIDENCE_UNEXPLAINED: f64 = 0.5;

/// Fires when everything that can be seen has room. It needs at least the processors and the queue to be seen.
pub fn check(facts: &Facts) -> Option<Finding> {
    let busy = facts.value(FactId::usable_busy_fraction).or(facts.value(FactId::cpu_busy_fraction))?;
    let goal_missed = facts.goal.zip(facts.value(FactId::rate)).is_some_and(|(goal, rate)| {
        matches!(goal, webdyno_model::tune::Goal::Rate(_)) && !goal.is_met_by(rate)
    });
    if !has_room(facts, busy)
        || !response_time::responds_well(facts)
        || slow_responses::noticed(facts).is_some()
        || hidden_queues::waits_for_a_thread(facts)
        || response_time::has_no_responses(facts)
        || !is_well_observed(facts)
        || goal_missed
        || hidden_queues::holds_workers_long(facts)
        || hidden_queues::is_lost_on_the_way(facts)
    {
        return None;
    }
    facts.value(FactId::accept_queue_mean)?;
    let workers_seen = facts.value(FactId::scoreboard_full_fraction).is_some();
    let workers = match is_below(facts, FactId::scoreboard_full_fraction, FULL_FRACTION_MAX) {
        true if workers_seen => ", workers free",
        true => "",
        false => ", workers just sufficient",
    };
    let others =
        if busy >= CPU_FRACTION_MAX { " (by other processes; the service did not wait)" } else { "" };
    Some(Finding {
        id: LimitId::Healthy.into(),
        summary: format!(
            "No limit reached: CPU {:.0}% busy{others}, accept queue nearly empty{workers}. The server kept up with the load.{}",
            busy * 100.0,
            headroom_text(facts)
        ),
        // The shares that were right on servers drawn at random (docs/diagnosis.md).
        confidence: match (facts.loaded, workers_seen) {
            _ if !response_time::is_explained(facts) || hidden_queues::may_wait_for_disk(facts) => {
                CONFIDENCE_UNEXPLAINED
            }
            (true, true) => 0.9,
            (true, false) => 0.8,
            // How long clients wait on the way, and what they asked for in vain, only they see.
            (false, _) => 0.7,
        },
        explains_fraction: None,
        facts: facts.cite(&fact_ids! {
            rate, failed_fraction, usable_busy_fraction, cpu_busy_fraction, pressure_group_cpu_some_fraction,
            accept_queue_mean, workers_idle_mean, workers_startable_mean, connect_time_max_us,
            response_time_mean_us, response_time_alone_us, response_time_inflation, offered_rate,
        }),
        remedies: vec![],
    })
}

/// Whether what was seen can be believed to its end.
fn is_well_observed(facts: &Facts) -> bool {
    facts.generator_fault.is_none()
        && facts.kernel_limit_total.is_none()
        && facts.harm_guard_trip.is_none()
        && !facts.readings_stopped
}

/// The nearest ceiling, in words: how much more there may be.
fn headroom_text(facts: &Facts) -> String {
    let all = ceilings(facts);
    let known = all.iter().filter_map(|ceiling| Some((ceiling.limit.as_str(), ceiling.binds_at_rate?)));
    let nearest = known.min_by(|a, b| a.1.total_cmp(&b.1)).zip(facts.ended_per_s());
    match nearest.filter(|((_, binds), rate)| binds > rate) {
        Some(((limit, binds), rate)) => format!(
            " Nearest limit: {limit}, saturates at about {} req/s ({} times the current rate).",
            format_number(binds),
            format_number(significant(binds / rate, 2))
        ),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::testing::{facts, of_pool, with_changes, with_harm_guard_trip};
    use webdyno_model::tune::Goal;

    const HEALTHY: [(FactId, f64); 11] = [
        (FactId::cpu_busy_fraction, 0.4),
        (FactId::accept_queue_mean, 0.0),
        (FactId::scoreboard_full_fraction, 0.0),
        (FactId::failed_fraction, 0.0),
        (FactId::rate, 500.0),
        (FactId::response_time_inflation, 1.1),
        (FactId::connect_time_max_us, 3_000.0),
        (FactId::connect_timeouts, 0.0),
        (FactId::pressure_io_full_fraction, 0.01),
        (FactId::response_time_first_us, 90_000.0),
        (FactId::response_time_mean_us, 100_000.0),
    ];

    /// What is found of a load that differs in this from a healthy one.
    fn with(changes: &[(FactId, f64)]) -> Option<Finding> {
        check(&facts(&with_changes(&HEALTHY, changes), &[]))
    }

    fn is_healthy(changes: &[(FactId, f64)]) -> bool {
        with(changes).is_some()
    }

    /// The same where the load is that of others.
    fn is_healthy_when_observed(changes: &[(FactId, f64)]) -> bool {
        let mut observed = facts(&with_changes(&HEALTHY, changes), &[]);
        observed.loaded = false;
        check(&observed).is_some()
    }

    #[test]
    fn room_everywhere_is_healthy() {
        assert_eq!(with(&[]).unwrap().confidence, 0.9);
    }

    #[test]
    fn any_limit_or_a_missed_goal_is_not() {
        for changed in [
            (FactId::cpu_busy_fraction, 0.97),
            (FactId::accept_queue_mean, 5.0),
            (FactId::failed_fraction, 0.01),
            (FactId::response_time_inflation, 4.0),
            (FactId::rate, 400.0),
            (FactId::connect_time_max_us, 1_030_000.0),
            (FactId::connect_timeouts, 2.0),
            (FactId::pressure_io_full_fraction, 0.94),
            (FactId::response_time_first_us, 20_000.0),
        ] {
            assert!(!is_healthy(&[changed, (FactId::offered_rate, 500.0)]), "{changed:?}");
        }
        let mut stopped = facts(&HEALTHY, &[]);
        stopped.harm_guard_trip = Some(with_harm_guard_trip("x"));
        assert!(check(&stopped).is_none());
        let mut unread = facts(&HEALTHY, &[]);
        unread.readings_stopped = true;
        assert!(check(&unread).is_none());
        for (goal, healthy) in [(Goal::Rate(400.0), true), (Goal::Rate(600.0), false), (Goal::Max, true)] {
            let mut facts = facts(&HEALTHY, &[]);
            facts.goal = Some(goal);
            assert_eq!(check(&facts).is_some(), healthy, "{goal}");
        }
    }

    // A hundred clients that have a hundred workers.
    #[test]
    fn next_to_none_that_queues_of_many_is_none() {
        for (queue, alone_us, healthy) in
            [(0.6, 200_000.0, true), (1.2, 200_000.0, false), (0.6, 150_000.0, false)]
        {
            let seen = [
                (FactId::scoreboard_full_fraction, 0.8),
                (FactId::status_unanswered_fraction, 0.0),
                (FactId::in_flight_mean, 100.0),
                (FactId::accept_queue_mean, queue),
                (FactId::response_time_first_us, 190_000.0),
                (FactId::response_time_mean_us, 192_000.0),
                (FactId::response_time_alone_us, alone_us),
            ];
            assert_eq!(is_healthy(&seen), healthy, "{queue} {alone_us}");
        }
    }

    #[test]
    fn a_mean_that_is_fine_hides_no_slow_responses() {
        for (slow, healthy) in [(0.004, true), (0.02, false)] {
            let few = [(FactId::slow_fraction, slow), (FactId::slow_time_fraction, 0.06)];
            let values = with_changes(&slow_responses::tests::SLOW, &few);
            assert_eq!(is_healthy(&values), healthy, "{slow}");
        }
    }

    #[test]
    fn a_few_milliseconds_cost_users_who_think_nothing() {
        // 150 users at 75 a second: two seconds from one request to the next.
        let with = |users: f64, usual_us: f64, busy: f64| {
            is_healthy(&[
                (FactId::users, users),
                (FactId::rate, 75.0),
                (FactId::cpu_busy_fraction, busy),
                (FactId::response_time_alone_us, 3_800.0),
                (FactId::response_time_mean_us, usual_us),
                (FactId::response_time_first_us, usual_us),
                (FactId::response_time_inflation, 2.6),
                (FactId::response_time_excess_us, 5_500.0),
            ])
        };
        assert!(with(150.0, 9_000.0, 0.36));
        assert!(!with(2.0, 9_000.0, 0.36), "who asks again at once loses by it");
        assert!(!with(150.0, 25_000.0, 0.36) && !with(150.0, 9_000.0, 0.7));
    }

    #[test]
    fn beside_a_database_that_lets_nobody_in_a_disk_that_is_waited_for_leaves_a_doubt() {
        let hidden = [(FactId::db_cpu_cores, 0.04), (FactId::pressure_group_io_some_fraction, 0.4)];
        for (change, confidence) in [
            ((FactId::db_cpu_cores, 0.04), 0.5),
            ((FactId::pressure_group_io_some_fraction, 0.1), 0.9),
            ((FactId::db_cpu_cores, f64::NAN), 0.9),
            ((FactId::db_threads_running_mean, 0.3), 0.9),
        ] {
            let finding = with(&with_changes(&hidden, &[change])).unwrap();
            assert_eq!(finding.confidence, confidence, "{change:?}");
        }
    }

    /// As where a database that webdyno may not look into waits for its disk.
    #[test]
    fn what_takes_half_as_long_again_beside_idle_processors_is_half_sure() {
        for (alone_us, busy, users, confidence) in [
            (62_000.0, 0.14, 12.0, 0.5),
            (80_000.0, 0.14, 12.0, 0.9),
            (62_000.0, 0.45, 12.0, 0.9),
            (62_000.0, 0.14, 24.0, 0.9),
        ] {
            let finding = with(&[
                (FactId::users, users),
                (FactId::rate, 125.0),
                (FactId::cpu_busy_fraction, busy),
                (FactId::response_time_alone_us, alone_us),
                (FactId::response_time_mean_us, 95_600.0),
            ]);
            assert_eq!(finding.unwrap().confidence, confidence, "{alone_us} {busy} {users}");
        }
    }

    #[test]
    fn users_who_come_together_wait_for_processors_that_idle_in_between() {
        // 16 users at 27 a second: 593 ms from one request to the next, of which 21 ms are waited.
        let base = [
            (FactId::users, 16.0),
            (FactId::rate, 27.0),
            (FactId::usable_busy_fraction, 0.28),
            (FactId::pressure_group_cpu_some_fraction, 0.22),
            (FactId::response_time_alone_us, 5_700.0),
            (FactId::response_time_mean_us, 26_900.0),
            (FactId::response_time_first_us, 26_000.0),
            (FactId::response_time_inflation, 2.5),
            (FactId::response_time_excess_us, 16_000.0),
        ];
        let with = |change: &[(FactId, f64)]| is_healthy(&with_changes(&base, change));
        assert!(with(&[]));
        for change in [
            &[(FactId::usable_busy_fraction, 0.4), (FactId::pressure_group_cpu_some_fraction, 0.35)][..],
            &[(FactId::pressure_group_cpu_some_fraction, 0.09)],
            &[(FactId::pressure_group_cpu_some_fraction, f64::NAN)],
            &[(FactId::users, 8.0)],
            &[(FactId::response_time_slowest_kind_us, 90_000.0)],
            // Somebody waits in less of the time than each user is said to.
            &[(FactId::usable_busy_fraction, 0.03), (FactId::pressure_group_cpu_some_fraction, 0.03)],
        ] {
            assert!(!with(change), "{change:?}");
        }
    }

    #[test]
    fn the_slow_end_and_a_slow_kind_count_in_a_load_of_several_kinds() {
        for (slow, healthy) in [
            ((FactId::response_time_p99_us, 1_200_000.0), true),
            ((FactId::response_time_p99_us, 2_800_000.0), false),
            ((FactId::response_time_slowest_kind_us, 450_000.0), true),
            ((FactId::response_time_slowest_kind_us, 800_000.0), false),
        ] {
            let mixed = [(FactId::response_time_alone_us, 400_000.0), slow];
            assert_eq!(is_healthy(&mixed), healthy, "{slow:?}");
        }
    }

    #[test]
    fn a_program_in_the_same_group_that_waits_for_a_processor_is_not_the_service() {
        for (own, inflation, healthy) in [(0.07, 1.2, true), (0.07, 1.9, false), (0.6, 1.2, false)] {
            let group = [
                (FactId::cpu_busy_fraction, 1.0),
                (FactId::pressure_group_cpu_some_fraction, 1.0),
                (FactId::usable_cores, 1.0),
                (FactId::offered_rate, 500.0),
                (FactId::service_cpu_cores, own),
                (FactId::response_time_inflation, inflation),
            ];
            assert_eq!(is_healthy(&group), healthy, "{own} cores, {inflation}");
        }
    }

    #[test]
    fn a_thread_that_has_a_whole_core_is_waited_for() {
        for (threads, alone_us, healthy) in
            [(1.0, 40_000.0, false), (0.2, 40_000.0, true), (1.0, 90_000.0, true)]
        {
            let observed = [
                (FactId::saturated_threads_mean, threads),
                (FactId::response_time_alone_us, alone_us),
                (FactId::cpu_busy_fraction, 0.7),
            ];
            assert_eq!(is_healthy(&observed), healthy, "{threads}, {alone_us}");
        }
    }

    #[test]
    fn connections_that_wait_for_answers_are_counted_where_nobody_asks() {
        for (all, idle, sending, healthy) in
            [(600.0, 80.0, 0.0, false), (600.0, 598.0, 0.0, true), (600.0, 80.0, 519.0, true)]
        {
            for rate in [500.0, f64::NAN] {
                let observed = [
                    (FactId::client_connections_mean, all),
                    (FactId::idle_connections_mean, idle),
                    (FactId::sending_connections_mean, sending),
                    (FactId::rate, rate),
                ];
                let found = is_healthy_when_observed(&observed);
                assert_eq!(found, healthy, "{all}, {idle}, {sending}, {rate}/s");
            }
        }
    }

    #[test]
    fn answers_that_differ_by_nature_are_no_queueing() {
        for (drift, offered, healthy) in [(1.1, 500.0, true), (9.0, 500.0, false), (1.1, 800.0, false)] {
            let observed = [
                (FactId::response_time_inflation, 4.0),
                (FactId::response_time_excess_us, 90_000.0),
                (FactId::response_time_drift_ratio, drift),
                (FactId::offered_rate, offered),
            ];
            assert_eq!(is_healthy(&observed), healthy, "{drift} at {offered}");
        }
    }

    #[test]
    fn a_server_that_answers_nothing_is_not() {
        let silent = |in_flight: f64| [(FactId::rate, 0.0), (FactId::in_flight_mean, in_flight)];
        assert!(!is_healthy(&silent(0.0)));
        assert!(is_healthy_when_observed(&silent(0.0)) && !is_healthy_when_observed(&silent(20.0)));
    }

    #[test]
    fn neighbours_that_wait_for_memory_or_a_disk_leave_room() {
        let neighbours =
            [(FactId::pressure_memory_full_fraction, 0.4), (FactId::pressure_io_full_fraction, 0.9)];
        assert!(!is_healthy(&neighbours), "it may be the service that waits");
        for (memory, io, healthy) in [(0.0, 0.0, true), (0.1, 0.0, false), (0.0, 0.8, false)] {
            let group = [
                (FactId::pressure_group_memory_full_fraction, memory),
                (FactId::pressure_group_io_full_fraction, io),
            ];
            assert_eq!(is_healthy(&[neighbours, group].concat()), healthy, "memory {memory}, disk {io}");
        }
    }

    #[test]
    fn a_little_stall_for_memory_is_no_limit_where_requests_take_as_long_as_one_alone() {
        for (memory, mean_us, healthy) in
            [(0.08, 100_000.0, true), (0.12, 100_000.0, false), (0.08, 115_000.0, false)]
        {
            let seen = [
                (FactId::pressure_memory_full_fraction, memory),
                (FactId::response_time_alone_us, 100_000.0),
                (FactId::response_time_mean_us, mean_us),
            ];
            assert_eq!(is_healthy(&seen), healthy, "{memory} {mean_us}");
        }
    }

    #[test]
    fn what_waits_behind_the_server_is_not_healthy() {
        // 100 ms each, 25 at once: 24 statements stand behind a lock of the program's own, one after the other.
        let load = [(FactId::in_flight_mean, 25.0), (FactId::ended_per_s, 250.0)];
        for (running, cores, inflation, healthy) in [
            (25.0, 0.02, 1.5, false),
            (25.0, 0.02, 1.0, true),
            (25.0, 16.0, 1.5, true),
            (3.0, 0.3, 1.5, true),
        ] {
            let behind = [
                (FactId::db_threads_running_mean, running),
                (FactId::db_cpu_cores, cores),
                (FactId::response_time_inflation, inflation),
            ];
            assert_eq!(is_healthy(&[&load[..], &behind].concat()), healthy, "{behind:?}");
        }
        for (queue, healthy) in [(12.0, false), (1.2, true)] {
            let mut facts = facts(&with_changes(&HEALTHY, &load), &[]);
            of_pool(&mut facts, "www", &[(FactId::fpm_queue_mean, queue)]);
            assert_eq!(check(&facts).is_some(), healthy, "{queue} in front of the pool");
            let other = [&load[..], &[(FactId::backend_queue_mean, queue)]].concat();
            assert_eq!(is_healthy(&other), healthy, "{queue} in front of another backend");
        }
    }

    #[test]
    fn short_answers_that_take_seconds_wait_for_something_unless_it_is_seen() {
        let held = [(FactId::service_time_mean_us, 1_500_000.0), (FactId::answer_bytes_mean, 900.0)];
        assert!(is_healthy(&held) && !is_healthy_when_observed(&held));
        for changed in [
            (FactId::service_time_mean_us, 900_000.0),
            (FactId::backend_time_mean_us, 1_400_000.0),
            (FactId::answer_bytes_mean, 4e6),
        ] {
            assert!(is_healthy_when_observed(&with_changes(&held, &[changed])), "{changed:?}");
        }
    }

    #[test]
    fn what_is_sent_again_and_again_keeps_clients_waiting_that_nobody_sees() {
        let sent_again = |share: f64, per_s: f64| {
            [(FactId::retransmitted_fraction, share), (FactId::retransmits_per_s, per_s)]
        };
        for (share, per_s, healthy) in [(0.9, 160.0, false), (0.02, 160.0, true), (0.9, 2.0, true)] {
            assert_eq!(is_healthy_when_observed(&sent_again(share, per_s)), healthy, "{share} {per_s}");
        }
        assert!(is_healthy(&sent_again(0.9, 160.0)), "what our own load waits for is measured");
    }

    #[test]
    fn tasks_that_wait_for_each_other_at_a_core_with_room_are_no_limit() {
        for (busy, times, healthy) in [(0.7, 1.04, true), (0.9, 1.04, false), (0.7, 1.4, false)] {
            let load = [
                (FactId::pressure_group_cpu_some_fraction, 0.6),
                (FactId::usable_busy_fraction, busy),
                (FactId::response_time_alone_us, 96_000.0),
                (FactId::response_time_inflation, times),
            ];
            assert_eq!(is_healthy(&load), healthy, "{busy} {times}");
        }
    }

    #[test]
    fn processors_that_others_fill_leave_room_where_the_service_does_not_wait() {
        let unseen = [(FactId::cpu_busy_fraction, 0.5), (FactId::pressure_cpu_some_fraction, 0.99)];
        assert!(!is_healthy(&unseen), "on one core of two");
        for (wait, healthy) in [(0.04, true), (0.9, false), (f64::NAN, false)] {
            let full = [(FactId::cpu_busy_fraction, 1.0), (FactId::pressure_group_cpu_some_fraction, wait)];
            assert_eq!(is_healthy(&full), healthy, "{wait}");
        }
    }

    #[test]
    fn the_nearest_limit_is_told() {
        let room =
            [(FactId::workers_limit, 150.0), (FactId::worker_time_mean_us, 100_000.0), (FactId::cores, 2.0)];
        let finding = with(&room).unwrap();
        // 2 cores at 40% for 500 a second; 150 workers of 100 ms each are farther away.
        let nearest =
            "Nearest limit: processor cores, saturates at about 1250 req/s (2.5 times the current rate).";
        assert!(finding.summary.ends_with(nearest), "{}", finding.summary);
    }

    #[test]
    fn a_multiple_of_next_to_nothing_is_no_queueing() {
        for (excess_us, healthy) in [(120.0, true), (400_000.0, false)] {
            let observed =
                [(FactId::response_time_inflation, 3.0), (FactId::response_time_excess_us, excess_us)];
            assert_eq!(is_healthy(&observed), healthy, "{excess_us}");
        }
    }

    #[test]
    fn what_takes_much_longer_than_alone_waits_for_something() {
        // 100 ms under load, in which nothing is seen to be full.
        for (alone_us, healthy) in [(90_000.0, true), (60_000.0, true), (25_000.0, false), (500.0, false)] {
            assert_eq!(is_healthy(&[(FactId::response_time_alone_us, alone_us)]), healthy, "{alone_us}");
        }
        // Twice as long as alone, with one user beside each.
        for (busy, offered, healthy) in [(0.1, f64::NAN, false), (0.7, f64::NAN, true), (0.1, 500.0, true)] {
            let changes = [
                (FactId::cpu_busy_fraction, busy),
                (FactId::response_time_alone_us, 50_000.0),
                (FactId::offered_rate, offered),
            ];
            assert_eq!(is_healthy(&changes), healthy, "{busy} {offered}");
        }
    }

    #[test]
    fn users_who_ask_again_at_once_leave_no_time_between_short_responses_unless_something_is_full() {
        for (users, alone_us, busy, healthy) in [
            (12.0, 2_000.0, 0.17, false),
            (12.0, 3_000.0, 0.17, true),
            (90.0, 2_000.0, 0.17, true),
            (12.0, 2_000.0, 0.7, true),
        ] {
            let load = [
                (FactId::users, users),
                (FactId::rate, 1236.0),
                (FactId::usable_busy_fraction, busy),
                (FactId::response_time_alone_us, alone_us),
                (FactId::response_time_mean_us, 9_700.0),
                (FactId::response_time_first_us, 9_600.0),
            ];
            assert_eq!(is_healthy(&load), healthy, "{users} users, {alone_us} us, {busy}");
        }
    }

    #[test]
    fn locks_that_are_waited_for_are_not_healthy_and_time_that_nobody_can_place_is_half_sure() {
        let slow = [(FactId::response_time_mean_us, 900_000.0), (FactId::response_time_first_us, 890_000.0)];
        for (changes, confidence) in [
            (vec![(FactId::lock_waiting_mean, 9.0), (FactId::in_flight_mean, 20.0)], None),
            (vec![(FactId::lock_waiting_mean, 1.0), (FactId::in_flight_mean, 20.0)], Some(0.9)),
            (slow.to_vec(), Some(0.5)),
            ([&slow[..], &[(FactId::response_time_alone_us, 850_000.0)]].concat(), Some(0.9)),
            ([&slow[..], &[(FactId::worker_time_mean_us, 880_000.0)]].concat(), Some(0.9)),
        ] {
            assert_eq!(with(&changes).map(|finding| finding.confidence), confidence, "{changes:?}");
        }
    }

    #[test]
    fn what_cannot_be_seen_is_not_called_healthy() {
        assert!(check(&facts(&[(FactId::rate, 500.0)], &[])).is_none());
        assert!(check(&facts(&HEALTHY[..1], &[])).is_none());
    }
}
