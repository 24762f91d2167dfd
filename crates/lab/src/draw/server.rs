//! A server that can be drawn, as plain data: what it is, what a request takes there, its load, and its settings. Faults and
//! decoys are changes of it.

use std::collections::{BTreeMap, BTreeSet};

/// The web server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Front {
    /// Apache with the prefork MPM.
    Prefork,
    /// Apache with the worker MPM.
    Worker,
    /// Apache with the event MPM.
    Event,
    /// nginx.
    Nginx,
    /// lighttpd, without TLS and compression.
    Lighttpd,
}

/// What makes its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pages {
    /// Nothing: files alone.
    Static,
    /// PHP inside of Apache's processes.
    ModPhp,
    /// PHP-FPM, by a socket in the file system.
    FpmUnix,
    /// PHP-FPM, by TCP.
    FpmTcp,
    /// Perl inside of Apache's processes.
    ModPerl,
    /// A program for each request.
    Cgi,
    /// Lua inside of Apache.
    Lua,
    /// An application server of a few processes, behind a reverse proxy.
    Proxy,
}

/// What a page asks the database for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// The rows of one item.
    Item,
    /// A number that only one at a time may raise.
    Number,
}

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrival {
    /// So many at once, each followed by the next.
    Closed(u32),
    /// So many a second, however slow the responses.
    Open(f64),
    /// So many users, who think for so many milliseconds in between.
    Users(u32, u32),
}

/// What is there in every state of the server, faulty or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extra {
    /// A name server that takes its time, and is the only one that knows the clients.
    Resolver,
    /// A small disk that is written synchronously.
    SlowDisk,
    /// A slow disk with the database on it.
    DataDisk,
    /// A program that could take lines of the log.
    Receiver,
    /// Files `.htaccess` with rules in a deep tree.
    Rules,
    /// A file `.htaccess` of a few lines.
    Htaccess,
    /// Files below a hundred folders.
    Deep,
    /// Thousands of files beside the front page.
    Crowd,
    /// Redirects in the server's configuration.
    Redirects,
    /// A load that is all there in its first second, which counts.
    Sudden,
    /// A link whose rate is set.
    ShapedLink,
    /// Other clients, who have a slow line together.
    SlowLine,
    /// A router between the clients and the server, whose line to the clients has a rate.
    Router,
    /// Clients that keep the cookie of a session.
    Cookie,
    /// Clients that take compressed responses.
    Compressing,
    /// A key that takes long to be made.
    LargeKey,
    /// A search below the page of an application server, which has a rule of its own.
    Search,
    /// A range of local ports, and an application that leaves it to its clients to close.
    LocalPorts,
    /// A service on another host, which pages of PHP ask and wait for.
    Partner,
    /// Boxes of a page, each with a connection to the database of its own.
    Boxes,
    /// A packet filter that remembers connections.
    Tracking,
    /// Rules of a packet filter.
    Firewall,
    /// A program whose memory is in swap, and that sleeps.
    Swapped,
}

/// Where the access log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogTarget {
    /// Where the package has it.
    #[default]
    Usual,
    /// Onto the disk of [`Extra::SlowDisk`].
    SlowDisk,
    /// Into the program of [`Extra::Receiver`].
    Receiver,
}

/// Names of no meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct Names {
    /// The site: part of paths, of the database, of the pool.
    pub site: &'static str,
    /// The page.
    pub page: &'static str,
    /// Where the files are.
    pub root: String,
    /// The format of the access log, by Apache's name for it.
    pub log_format: &'static str,
    /// Other sites of the same server.
    pub others: Vec<&'static str>,
    /// The port that clients know.
    pub port: u16,
    /// The port of what stands behind, where it listens on one.
    pub inner_port: u16,
}

/// The server, its load and its settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// The web server.
    pub front: Front,
    /// What makes its pages.
    pub pages: Pages,
    /// Its names.
    pub names: Names,
    /// Whether it has one core for itself, and the clients another one.
    pub pinned: bool,
    /// Whether clients use TLS.
    pub tls: bool,
    /// Whether the status page is there: of the web server, and of PHP-FPM.
    pub status: Status,
    /// How long a page waits for something else, milliseconds.
    pub wait_ms: u32,
    /// How much of a core it takes besides, milliseconds: by a guess, what it is is measured.
    pub work_ms: f64,
    /// How long it is.
    pub answer_bytes: u32,
    /// Files that are asked for, or a page names: their sizes.
    pub files_bytes: Vec<u32>,
    /// Classes that a page of PHP loads.
    pub classes: u32,
    /// Memory that a page of PHP holds while it waits, MB.
    pub page_mb: u32,
    /// What a page asks the database for.
    pub query: Option<Query>,
    /// How requests come.
    pub arrival: Arrival,
    /// Whether users load what a page names, as browsers do.
    pub loads_resources: bool,
    /// Whether clients keep their connections.
    pub kept: bool,
    /// What is there in every state.
    pub extras: BTreeSet<Extra>,
    /// The settings.
    pub settings: Settings,
}

/// How much of the status page is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// As the package has it, or its manual.
    There,
    /// Only for somebody else.
    Protected,
    /// The module is not loaded.
    Absent,
}

/// What faults and decoys change.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// Processors' time of the host.
    pub cpus: f64,
    /// Rate of the link towards the clients, Mbit/s.
    pub mbit: u32,
    /// Clients on the slow line who download something large.
    pub downloads: u32,
    /// Clients there who send something large to a page.
    pub uploads: u32,
    /// Rate of the router's line towards the clients, Mbit/s.
    pub upstream_mbit: u32,
    /// Memory of the host, MB.
    pub memory_mb: u32,
    /// One in so many packets that begin a connection is dropped.
    pub lost_one_in: Option<u32>,
    /// Length of the listening socket's queue, where it is said.
    pub backlog: Option<u32>,
    /// Kernel settings of the host.
    pub sysctl: BTreeMap<&'static str, u64>,
    /// nf_conntrack_max, which the whole machine has.
    pub tracked: u32,
    /// How many local ports there are, where it is not the usual range.
    pub local_ports: Option<u32>,
    /// Bits of an RSA key; 0 is a key on an elliptic curve.
    pub rsa_bits: u32,
    /// Whether clients may resume their TLS sessions.
    pub resumes: bool,
    /// MaxRequestWorkers.
    pub workers: u32,
    /// ThreadsPerChild.
    pub threads: u32,
    /// StartServers, where it is not all of them; no more are kept in reserve than one.
    pub few_workers: Option<u32>,
    /// AsyncRequestWorkerFactor, where it is said.
    pub async_factor: Option<u32>,
    /// ServerLimit, where it is not what the workers need.
    pub server_limit: Option<u32>,
    /// KeepAliveTimeout or keepalive_timeout, seconds; 0 is off.
    pub keepalive_s: u32,
    /// MaxConnectionsPerChild.
    pub connections_per_child: u32,
    /// AllowOverride.
    pub overrides: bool,
    /// MultiViews.
    pub negotiates: bool,
    /// Whether links are looked for on each path: no FollowSymLinks.
    pub checks_links: bool,
    /// HostnameLookups.
    pub lookups: bool,
    /// LogLevel.
    pub log_level: &'static str,
    /// Where the access log goes.
    pub log: LogTarget,
    /// mod_ratelimit, KiB/s of each connection; limit_rate of nginx, connection.kbytes-per-second of lighttpd.
    pub limit_kib_s: Option<u32>,
    /// nginx: limit_req, requests per second in all.
    pub limit_req: Option<u32>,
    /// Level of compression.
    pub compression: Option<u32>,
    /// nginx: worker_processes; `None` is one for each core.
    pub nginx_workers: Option<u32>,
    /// nginx: worker_connections; lighttpd: server.max-connections.
    pub front_connections: u32,
    /// nginx: worker_rlimit_nofile.
    pub nginx_files: Option<u32>,
    /// Connections to the application server that one process may have.
    pub proxy_places: Option<u32>,
    /// pm.max_children.
    pub children: u32,
    /// pm.start_servers, where not all of them are there from the start; as many are kept in reserve.
    pub few_children: Option<u32>,
    /// Whether PHP-FPM starts each process when a request comes, and ends it when none came for a while.
    pub on_demand: bool,
    /// opcache.enable.
    pub opcache: bool,
    /// opcache.memory_consumption, MB.
    pub opcache_mb: u32,
    /// Whether a page keeps its session open while it waits.
    pub session: bool,
    /// Whether it locks a file of the site meanwhile.
    pub file_lock: bool,
    /// Whether it asks the name server before.
    pub resolves: bool,
    /// Processes of the application server.
    pub app_workers: u32,
    /// Whether its search is looked for where nobody listens.
    pub misses_search: bool,
    /// Processes of the service that pages ask.
    pub partner_workers: u32,
    /// max_connections.
    pub db_connections: u32,
    /// thread_cache_size, where it is said.
    pub thread_cache: Option<u32>,
    /// Whether a commit waits for the disk.
    pub flushes_commits: bool,
    /// innodb_buffer_pool_size, where it is said, MB.
    pub buffer_pool_mb: Option<u32>,
    /// Whether the item's column has an index.
    pub index: bool,
    /// Whether the number is raised before the page waits.
    pub number_first: bool,
    /// Processes of another program that use the processors.
    pub jobs: u32,
    /// Lines of an error log from long ago.
    pub old_log: bool,
}

impl Server {
    /// Whether the front is Apache.
    pub fn is_apache(&self) -> bool {
        matches!(self.front, Front::Prefork | Front::Worker | Front::Event)
    }

    /// Whether pages are PHP.
    pub fn is_php(&self) -> bool {
        matches!(self.pages, Pages::ModPhp) || self.has_fpm()
    }

    /// Whether PHP-FPM makes them.
    pub fn has_fpm(&self) -> bool {
        matches!(self.pages, Pages::FpmUnix | Pages::FpmTcp)
    }

    /// Cores that it may use.
    pub fn cores(&self) -> f64 {
        if self.pinned { 1.0 } else { 1.4 }
    }

    /// Whether a process or thread of Apache is held while a page waits.
    pub fn holds_workers(&self) -> bool {
        self.is_apache() && self.pages != Pages::Static
    }

    /// Processes of Apache with threads.
    pub fn processes(&self) -> u32 {
        self.settings.workers.div_ceil(self.settings.threads.max(1)).max(1)
    }

    /// Requests under way at once when nothing limits.
    pub fn demand(&self) -> f64 {
        let each_ms = f64::from(self.wait_ms) + self.work_ms;
        match self.arrival {
            Arrival::Closed(count) => f64::from(count),
            Arrival::Open(rate) => rate * each_ms / 1000.0,
            Arrival::Users(count, think_ms) => f64::from(count) * each_ms / (each_ms + f64::from(think_ms)),
        }
    }

    /// Requests per second when nothing limits, by a guess.
    pub fn rate(&self) -> f64 {
        let each_ms = f64::from(self.wait_ms) + self.work_ms;
        match self.arrival {
            Arrival::Closed(_) if self.wait_ms == 0 => self.cores() * 1000.0 / self.work_ms,
            Arrival::Closed(count) => f64::from(count) * 1000.0 / each_ms,
            Arrival::Open(rate) => rate,
            Arrival::Users(count, think_ms) => f64::from(count) * 1000.0 / (each_ms + f64::from(think_ms)),
        }
    }

    /// Whether so much more work for each request, in milliseconds of a core, is more than there is.
    pub fn is_overloaded_by(&self, more_ms: f64) -> bool {
        self.rate() * (self.work_ms + more_ms) / 1000.0 > self.cores() * 1.1
    }

    /// Bytes of a response, the mean of all that is asked for.
    pub fn bytes(&self) -> f64 {
        let page = (self.pages != Pages::Static).then_some(self.answer_bytes);
        let all: Vec<u32> = page.into_iter().chain(self.files_bytes.iter().copied()).collect();
        all.iter().map(|bytes| f64::from(*bytes)).sum::<f64>() / all.len().max(1) as f64
    }

    /// Files that a page names: one of files alone is the first of them itself.
    pub fn resources(&self) -> u32 {
        let files = self.files_bytes.len() as u32;
        files.saturating_sub(u32::from(self.pages == Pages::Static))
    }

    /// Connections at once when nothing limits.
    pub fn connections(&self) -> u32 {
        match self.arrival {
            // A browser has one for each file, and no more than six.
            Arrival::Users(count, _) if self.loads_resources => count * self.resources().clamp(1, 6),
            Arrival::Closed(count) | Arrival::Users(count, _) => count,
            Arrival::Open(_) => (self.demand() * 2.0) as u32 + 10,
        }
    }

    /// Whether what is drawn has work for the processors in every moment.
    pub fn is_full(&self) -> bool {
        matches!(self.arrival, Arrival::Closed(_)) && self.wait_ms == 0
    }

    /// In a few words: `event, php-fpm by tcp, mariadb, TLS`.
    pub fn words(&self) -> String {
        let front = match self.front {
            Front::Prefork => "Apache (prefork)",
            Front::Worker => "Apache (worker)",
            Front::Event => "Apache (event)",
            _ => self.front.words(),
        };
        let database = self.query.map(|_| "MariaDB");
        let tls = self.tls.then_some("TLS");
        let pinned = self.pinned.then_some("a core of its own");
        let on_demand = (self.has_fpm() && self.settings.on_demand).then_some("pm = ondemand");
        let words = [Some(front), Some(self.pages.words()), on_demand, database, tls, pinned];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl Front {
    /// Its name, as figures are told apart by it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Lighttpd => "lighttpd",
            _ => "Apache",
        }
    }
}

impl Names {
    /// The address of the application's search, by its rule of the front.
    pub fn search(&self, is_missed: bool) -> String {
        format!("http://127.0.0.1:{}", self.inner_port + u16::from(is_missed))
    }

    /// The port of the service that pages ask.
    pub fn partner_port(&self) -> u16 {
        self.inner_port + 1000
    }
}

impl Pages {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Static => "files",
            Self::ModPhp => "mod_php",
            Self::ModPerl => "mod_perl",
            Self::FpmUnix => "PHP-FPM by a socket",
            Self::FpmTcp => "PHP-FPM by TCP",
            Self::Cgi => "CGI",
            Self::Lua => "mod_lua",
            Self::Proxy => "an application server",
        }
    }
}
