//! What becomes of the part of a worker that was lost: the load ends, or others have it from a whole second on that comes when the lost one
//! has surely stopped. What was due in between is sent by nobody, so that nothing is sent twice.

use super::member::Member;
use super::part::Part;
use super::{Action, Load, OnLoss, results};
use crate::protocol::{MOVE_LEAD_NS, S};
use std::collections::BTreeMap;
use webdyno_model::interval::EndReason;
use webdyno_model::worker::LoadShare;

type Members = BTreeMap<String, Member>;

/// A part was lost: `what` happened to its worker.
pub(super) fn lost(
    members: &mut Members,
    load: &mut Load,
    (now_ns, session): (u64, &str),
    (at, what): (usize, &str),
) -> Vec<Action> {
    let percent = load.parts[at].percent();
    let ends = |load: &mut Load, why: &str| {
        load.stop.get_or_insert(EndReason::WorkerLost);
        let text = format!("{what}: the load ends, as {percent:.0}% of it are missing from then on{why}");
        vec![Action::Note(text)]
    };
    let OnLoss::Move { seconds } = load.order.on_loss else { return ends(load, "") };
    if load.stop.is_some() {
        return ends(load, "");
    }
    let from_s = free_from_s(members, load, now_ns, at);
    if seconds.is_some_and(|seconds| from_s >= seconds) {
        let text =
            format!("{what}: {percent:.0}% of the load are missing from then on, and it is nearly over");
        return vec![Action::Note(text)];
    }
    let Some(parts) = takers(members, load, (now_ns, session), (at, from_s)) else {
        return ends(load, ", and no other worker has room for them");
    };
    let names: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
    load.parts[at].taken_over_at_s = Some(from_s);
    load.parts.extend(parts);
    let text = format!(
        "{what}: its {percent:.0}% of the load are made by {} from {from_s} s on; what was due in between is sent by nobody",
        names.join(", ")
    );
    vec![Action::Note(text), Action::Parts(results::parts(load))]
}

/// The first whole second at which its worker sends nothing more, and others can be ready.
fn free_from_s(members: &Members, load: &Load, now_ns: u64, at: usize) -> u64 {
    let part = &load.parts[at];
    let quiet_ns = match part.end_index() {
        Some(_) => now_ns,
        None => members.get(&part.worker).map_or(now_ns, Member::quiet_at_ns),
    };
    let from_ns = quiet_ns.max(now_ns + MOVE_LEAD_NS).saturating_sub(load.start_at_ns);
    from_ns.div_ceil(S).max(load.next_second).max(part.from_s)
}

/// Its parts for those that have room: workers without a part first, then beside their own. `None` when there is too little.
fn takers(
    members: &Members,
    load: &Load,
    (now_ns, session): (u64, &str),
    (at, from_s): (usize, u64),
) -> Option<Vec<Part>> {
    let lost = &load.parts[at];
    let has_part = |instance: &str| load.parts.iter().any(|part| part.worker == instance);
    let is_lost = |process: &str| {
        let mut parts = load.parts.iter().filter(|part| process_of(&part.worker) == process);
        parts.any(|part| part.lost_since_ns.is_some())
    };
    let mut free: Vec<&Member> = members
        .values()
        .filter(|member| !member.is_silent(now_ns) && member.is_clock_known() && member.is_free_for(session))
        .filter(|member| {
            !has_part(&member.announce.instance) && !is_lost(process_of(&member.announce.instance))
        })
        .filter(|member| member.status(session, load.order.load).is_none())
        .collect();
    // The smallest first: what they have no room for is left to the others.
    free.sort_by_key(|member| {
        let announce = &member.announce;
        (announce.spare, announce.threads, announce.name.clone())
    });
    let (mut first_thread, mut left) = (lost.share.first_thread, lost.share.threads);
    let mut parts = vec![];
    for (number, member) in free.iter().enumerate() {
        let others = free[number..].iter().filter(|member| member.announce.spare).count() as u32;
        let even = if member.announce.spare { left.div_ceil(others.max(1)) } else { left };
        let threads = even.min(member.announce.threads).min(left);
        if threads > 0 {
            let share = LoadShare { first_thread, threads, total_threads: lost.share.total_threads };
            let name = format!("{} for {}", member.announce.name, lost.name);
            parts.push(Part::taken_over(name, member.announce.instance.clone(), (share, from_s)));
            (first_thread, left) = (first_thread + threads, left - threads);
        }
    }
    (left == 0).then_some(parts)
}

/// A process may have several parts: PROCESS.NUMBER.
fn process_of(instance: &str) -> &str {
    instance.rsplit_once('.').map_or(instance, |(process, _)| process)
}
