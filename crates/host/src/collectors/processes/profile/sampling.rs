//! What the processors do, 99 times a second each: by the kernel's own clock, so that it works in virtual machines, too.
//!
//! Facts: perf_event_open(2) and the kernel's Documentation/admin-guide/perf-security.rst: with CAP_PERFMON (or
//! CAP_SYS_ADMIN) or a `kernel.perf_event_paranoid` of 0 and below everything is seen; with 1 the processes of one's own
//! user with what the kernel does for them, with 2 without it; what some distributions add, 3 and above, allows none of it.
//! The clock of an idle processor gives no samples (`exclude_idle`). Whoever is seen alone is seen thread by thread, and what these
//! start with them (`inherit`), which takes a buffer for each thread and processor.
//!
//! 99 and not 100: what happens at the kernel's own ticks would be always or never seen.

use crate::os::processors::Processors;
use crate::os::procfs;
use perf_event_open::config::{
    CallChain as ChainOptions, Cpu, Inherit, Opts, Proc, SampleOn, Target as EventTarget,
};
use perf_event_open::count::Counter;
use perf_event_open::event::sw::Software;
use perf_event_open::sample::Sampler;
use perf_event_open::sample::record::Record;
use perf_event_open::sample::record::sample::{CallChain, Sample};
use std::collections::BTreeSet;
use std::io;

/// Samples of each processor, or thread, in a second of its work.
pub(super) const FREQUENCY_HZ: u64 = 99;
/// Pages of the buffer of a processor, as a power of two: a second and more of the deepest chains; and of a thread.
const PROCESSOR_PAGES_EXP: u8 = 5;
const THREAD_PAGES_EXP: u8 = 1;
/// Buffers of threads, one for each processor: the kernel lends a user half a megabyte for each processor.
const THREAD_BUFFERS_MAX: usize = 128;

/// How much of it may be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scope {
    /// All that runs, not the service alone.
    pub(super) is_machine: bool,
    /// What the kernel does, too.
    pub(super) with_kernel: bool,
}

/// What a processor did at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) pid: u32,
    /// Where in the program; `None` where it was in the kernel.
    pub(super) address: Option<u64>,
    /// Where in the kernel, the innermost function first.
    pub(super) kernel: Vec<u64>,
}

/// What was read since the last time.
#[derive(Debug, Default)]
pub(super) struct Drained {
    pub(super) hits: Vec<Hit>,
    /// Processes that began, each with its parent.
    pub(super) forks: Vec<(u32, u32)>,
    /// Processes that took the name of another program.
    pub(super) names: Vec<(u32, String)>,
    /// What did not fit into a buffer.
    pub(super) lost_count: u64,
}

/// An open sampler. The counter is kept, as with it ends what it counts.
struct Open {
    _counter: Counter,
    sampler: Sampler,
}

impl Open {
    fn new(target: impl Into<EventTarget>, scope: Scope, pages_exp: u8) -> io::Result<Self> {
        let mut opts = Opts { enable: true, sample_on: SampleOn::Freq(FREQUENCY_HZ), ..Opts::default() };
        opts.exclude.kernel = !scope.with_kernel;
        opts.exclude.hv = !scope.with_kernel;
        opts.exclude.idle = true;
        opts.inherit = (!scope.is_machine).then_some(Inherit::NewChild);
        opts.sample_format.code_addr = true;
        opts.sample_format.call_chain = scope.with_kernel.then_some(ChainOptions {
            exclude_user: true,
            exclude_kernel: false,
            defer_user: false,
            max_stack_frames: 0,
        });
        opts.record_id_format.task = true;
        opts.extra_record.task = scope.is_machine;
        opts.extra_record.comm = scope.is_machine;
        let counter = Counter::new(Software::CpuClock, target, &opts)?;
        let sampler = counter.sampler(pages_exp)?;
        Ok(Self { _counter: counter, sampler })
    }

    fn drain(&self, into: &mut Drained) {
        for (_, record) in self.sampler.iter().into_iter().flatten() {
            match record {
                Record::Sample(sample) => into.hits.extend(hit(&sample)),
                Record::Fork(fork) if fork.task.pid != fork.parent_task.pid => {
                    into.forks.push((fork.task.pid, fork.parent_task.pid));
                }
                Record::Comm(comm) if comm.task.pid == comm.task.tid => {
                    into.names.push((comm.task.pid, comm.comm.to_string_lossy().into_owned()));
                }
                Record::LostRecords(lost) => into.lost_count += lost.lost_records,
                _ => {}
            }
        }
    }
}

/// A sample; the clock rings where interrupts are let in again, which the chain of calls tells.
fn hit(sample: &Sample) -> Option<Hit> {
    let task = sample.record_id.task.as_ref()?;
    let chains = sample.call_chain.iter().flatten();
    let address = sample.code_addr.map(|(address, _)| address)?;
    let mut kernel: Vec<u64> = chains
        .flat_map(|chain| match chain {
            CallChain::Kernel(addresses) => addresses.as_slice(),
            _ => &[],
        })
        .copied()
        .collect();
    // The upper half is the kernel's.
    if kernel.is_empty() && address >> 63 == 1 {
        kernel.push(address);
    }
    let address = Some(address).filter(|_| kernel.is_empty());
    Some(Hit { pid: task.pid, address, kernel })
}

/// What is sampled.
pub(super) struct Sampling {
    pub(super) scope: Scope,
    /// Of these programs, where it is not the machine.
    pub(super) mains: Vec<u32>,
    all: Vec<Open>,
}

impl Sampling {
    /// All that is allowed: the machine, or the threads of these processes and of their children. An error where nothing is.
    pub(super) fn open(mains: &[u32]) -> io::Result<Self> {
        let cpus = Processors::online().ok_or(io::ErrorKind::NotFound)?;
        let scope = Scope { is_machine: true, with_kernel: true };
        let machine: io::Result<Vec<Open>> =
            cpus.0.iter().map(|cpu| Open::new((Proc::ALL, Cpu(*cpu)), scope, PROCESSOR_PAGES_EXP)).collect();
        if let Ok(all) = machine {
            return Ok(Self { scope, mains: vec![], all });
        }
        let threads = threads_of(mains, THREAD_BUFFERS_MAX / cpus.count().max(1));
        let mut refused = io::Error::from(io::ErrorKind::NotFound);
        for with_kernel in [true, false] {
            let scope = Scope { is_machine: false, with_kernel };
            let each = threads.iter().flat_map(|thread| cpus.0.iter().map(|cpu| (Proc(*thread), Cpu(*cpu))));
            let mut all = vec![];
            for target in each {
                match Open::new(target, scope, THREAD_PAGES_EXP) {
                    Ok(open) => all.push(open),
                    Err(error) => refused = error,
                }
            }
            if !all.is_empty() {
                return Ok(Self { scope, mains: mains.to_vec(), all });
            }
        }
        Err(refused)
    }

    /// Whether it is of these programs, too.
    pub(super) fn is_of(&self, mains: &[u32]) -> bool {
        self.scope.is_machine || self.mains == mains
    }

    /// What was sampled since the last time.
    pub(super) fn drain(&self) -> Drained {
        let mut drained = Drained::default();
        self.all.iter().for_each(|open| open.drain(&mut drained));
        drained
    }
}

/// Their threads, those of the busiest processes first.
fn threads_of(mains: &[u32], most: usize) -> Vec<u32> {
    let pids: BTreeSet<u32> = mains.iter().flat_map(|pid| procfs::tree_of(*pid)).collect();
    let mut pids: Vec<u32> = pids.into_iter().collect();
    pids.sort_by_key(|pid| std::cmp::Reverse(procfs::run_time_ns(*pid)));
    pids.into_iter().flat_map(procfs::threads_of).take(most.max(1)).collect()
}
