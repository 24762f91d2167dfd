//! `compression`: compressing responses takes the CPU.
//!
//! Whoever compresses while sending does it again for each request, and at a high level takes several times as long for a few
//! percent less: level 9 of zlib takes up to ten times the CPU time of level 1. What looks like honest work of the processors is a
//! setting.
//!
//! ## How it is recognised
//! The cores that the service may use are saturated, or one thread of it has one core to itself (`single-thread-saturated`); the
//! responses come compressed, at `DeflateCompressionLevel` 7 and above (4 where compressing takes 40%) or `gzip_comp_level` 4 and above; and samples of what the
//! processors do (99 a second, as of `perf record`) show compression for 40% of the service's CPU time and more, or with less confidence for an
//! eighth; of Apache's mod_deflate with the memory that it takes for each response, which of small ones is most of the cost. Under a
//! CPU quota that is used up it is named where a lower level gives more than all cores would; of a program of the site that compresses
//! itself without a setting that is known. Where sampling
//! is not permitted: the server sends files, and a request takes several times the CPU time that sending the same bytes as they
//! are would take, most of it outside of the kernel.
//!
//! ## What to do
//! A lower level: 1 in nginx, and in Apache where compressing takes 40% of the CPU time, else 6 (zlib's own); responses grow by a few percent, at most by a fifth. Best is to compress
//! files once (`gzip_static on`, or `.gz` files beside them; in lighttpd `deflate.cache-dir`), and not to compress what is compressed already (images, archives).
//!
//! ## By hand
//! `perf top` or `top -H` under load: deflate of libz; `nginx -T | grep gzip`; `grep -r DeflateCompressionLevel /etc/apache2`.

mod expected;
pub(crate) mod finding;

use crate::facts::fact_ids;
use crate::limits::ceiling::Resource;
use crate::limits::{Limit, LimitGain, LimitId, LimitKind};

/// What is registered of it.
pub const LIMIT: Limit = Limit {
    reads: &[&fact_ids! {
        answer_bytes_mean, client_cpu_cores, cpu_busy_fraction, cpu_per_request_us, cores, offered_rate, processor_time_fraction, rate,
        response_time_mean_us, service_cpu_cores, usable_busy_fraction, usable_cores,
    }],
    causes: &[
        LimitId::CpuSaturated,
        LimitId::CpuThrottled,
        LimitId::SingleThreadSaturated,
        LimitId::ApacheWorkersExhausted,
        LimitId::AcceptQueueOverflow,
        LimitId::SynQueueOverflow,
    ],
    relieves: &[Resource::Processors],
    kind: Some(LimitKind::RequestCost),
    gain: Some(LimitGain::Cost),
    ..Limit::of(LimitId::Compression, "Compression takes the CPU", finding::check)
};
