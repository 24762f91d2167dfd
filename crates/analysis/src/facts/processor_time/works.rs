//! What a program, a shared object, a function is for: tables of how their names begin.
//!
//! Sources: the names of Debian's and Red Hat's packages, of Apache's modules (<https://httpd.apache.org/docs/2.4/mod/>), of the
//! functions that zlib, OpenSSL and nginx export, and of the kernel's own (the folders net, fs, mm, block, crypto, kernel/sched).
//!
//! The innermost name that a table knows decides. What only helps others (copies, locks) says little of why it is done: of these
//! a copy counts as such, and a lock as what is done under it.

use webdyno_model::processor_time::ProcessorWork as Work;

/// What stands for the kernel among objects.
pub(super) const KERNEL: &str = "[kernel]";

type Table = [(Work, &'static [&'static str])];

/// Programs: what they do where neither function nor object says more.
#[rustfmt::skip] // a table
const PROGRAMS: &Table = &[
    (Work::Server, &[
        "apache2", "httpd", "nginx", "lighttpd", "caddy", "haproxy", "varnish", "litespeed", "openlitespeed",
    ]),
    (Work::Php, &["php"]),
    (Work::Database, &["mariadb", "mysql", "postgres", "redis", "valkey", "memcached", "mongod"]),
    (Work::Compression, &["gzip", "pigz", "zstd", "brotli", "xz", "bzip2"]),
    (Work::Cryptography, &["openssl", "sha1sum", "sha256sum", "sha512sum", "md5sum", "b2sum"]),
    (Work::Network, &["[ksoftirqd", "[napi"]),
];

/// Shared objects.
#[rustfmt::skip] // a table
const OBJECTS: &Table = &[
    (Work::Compression, &[
        "libz.", "libz-ng", "libbrotli", "libdeflate", "libzstd", "mod_deflate", "mod_brotli", "ngx_http_brotli",
    ]),
    (Work::Cryptography, &[
        "libcrypto", "libssl", "libgnutls", "libnettle", "libhogweed", "libgcrypt", "libmbed", "mod_ssl",
        "libsodium",
    ]),
    (Work::Php, &["libphp", "mod_php", "opcache"]),
    (Work::Rewriting, &["mod_rewrite", "libpcre"]),
    (Work::Logging, &["mod_log", "mod_logio"]),
    (Work::Server, &["mod_", "libapr", "libevent", "libnghttp2", "ngx_"]),
    (Work::Memory, &["libjemalloc", "libtcmalloc", "libmimalloc"]),
];

/// Functions of programs, where their names are known: of those that have everything in one file, too.
#[rustfmt::skip] // a table
const FUNCTIONS: &Table = &[
    (Work::Compression, &[
        "deflate", "inflate", "longest_match", "compress_block", "adler32", "crc32", "Brotli", "ZSTD_",
        "ngx_http_gzip",
    ]),
    (Work::Cryptography, &[
        "SSL_", "EVP_", "aes_", "aesni", "sha256_", "sha512_", "ngx_ssl",
    ]),
    (Work::TlsHandshakes, &["bn_", "BN_", "rsaz_", "ecp_", "RSA_", "EC_", "x25519", "crypto/rsa.", "crypto/ecdsa."]),
    (Work::Rewriting, &["pcre", "ngx_http_rewrite", "ngx_http_script", "ngx_regex"]),
    (Work::Logging, &["ngx_http_log", "ngx_log", "ap_log"]),
    (Work::Copy, &["memcpy", "memmove", "mempcpy", "memset", "__mem"]),
    (Work::Memory, &[
        "malloc", "calloc", "realloc", "free", "_int_malloc", "_int_free", "cfree", "__libc_malloc", "__libc_free",
    ]),
];

/// Functions of some objects, also of those without a name that lie behind one (`~NAME`), as functions of one purpose lie
/// together: seen in OpenSSL 3.0 (`openssl speed` of each algorithm), PHP 8.2 and Apache 2.4 of Debian. A program comes first where
/// others use the same object for something else.
#[rustfmt::skip] // a table
const OF_OBJECTS: &[(&str, &[&str], &Table)] = &[
    ("", &["libcrypto", "libssl"], &[
        // What cannot be resumed or reused: keys, curves, large numbers. What lies behind BIO and DSO is the begin of bn and ec.
        (Work::TlsHandshakes, &[
            "BN_", "EC_", "ECDSA_", "ECDH_", "RSA_", "DH_", "DSA_", "EVP_PKEY", "EVP_DigestSign", "EVP_DigestVerify",
            "BIO_sock_should_retry", "DSO_global_lookup",
        ]),
    ]),
    ("", &["libphp", "php", "opcache"], &[
        (Work::PhpCompilation, &[
            "zendparse", "lex_scan", "zend_lex_", "zend_ast_", "zend_compile", "compile_file", "compile_string",
            "open_file_for_scanning", "zend_prepare_string_for", "zend_save_lexical", "zend_restore_lexical", "zend_multibyte",
            "zend_get_scanned", "zend_set_compiled", "zend_restore_compiled", "zend_get_compiled", "zend_is_auto_global",
            "zend_is_smart_branch", "zend_get_call_op", "zend_is_op_long", "zend_binary_op_produces",
            "zend_unary_op_produces", "zend_stack_", "init_op_array", "destroy_op_array", "zend_recalc_live", "pass_two",
            "zend_vm_set_opcode_handler", "zend_optimize",
        ]),
    ]),
    // Patterns of the server's own files are compiled once, at its start.
    ("apache2", APACHE, SETTINGS),
    ("httpd", APACHE, SETTINGS),
];
const APACHE: &[&str] = &["apache2", "httpd", "libpcre", "libapr-"];
#[rustfmt::skip] // a table
const SETTINGS: &Table = &[
    (Work::Settings, &[
        "pcre2_compile", "pcre2_code_free", "pcre_compile", "ap_regcomp", "ap_getword_conf", "ap_cfg_", "ap_pcfg_", "ap_walk_config",
        "ap_build_config", "ap_parse_htaccess", "ap_resolve_env", "ap_str_tolower", "apr_file_gets",
    ]),
    // What is formatted most are lines of a log.
    (Work::Logging, &["ap_log", "ap_escape_errorlog", "apr_vformatter"]),
];

/// Functions of the kernel.
#[rustfmt::skip] // a table
const KERNEL_FUNCTIONS: &Table = &[
    (Work::Copy, &[
        "copy_user", "rep_movs", "_copy_to_", "_copy_from_", "copy_page", "memcpy", "csum_partial_copy",
        "__pi_memcpy", "clear_user",
    ]),
    (Work::Cryptography, &[
        "aes", "sha1_", "sha256_", "sha512_", "chacha", "poly1305", "gcm_", "crypto_", "tls_", "ghash",
    ]),
    (Work::Network, &[
        "tcp_", "__tcp", "ip_", "__ip", "ip6", "ipv6", "ipv4", "udp", "inet", "__inet", "sock", "__sock", "sk_",
        "__sk", "skb", "kfree_skb", "napi", "__napi", "net_", "netif", "__netif", "dev_", "__dev", "nf_", "nft_",
        "ipt_", "loopback", "veth", "virtnet", "eth_", "qdisc", "fib_", "neigh", "process_backlog", "unix_",
        "__sys_sendto", "__sys_recv", "__sys_accept", "sys_sendto", "sys_recv", "sys_accept", "sys_sendmsg",
        "sys_connect", "sys_socket", "sys_shutdown", "ep_", "eventpoll", "do_epoll", "sys_epoll", "pfifo", "fq_",
        "br_", "tun_", "handle_softirqs", "__do_softirq", "xmit",
    ]),
    (Work::FileSystem, &[
        "ext4", "xfs", "btrfs", "overlay", "ovl_", "vfs_", "filemap", "generic_file", "generic_perform", "iomap",
        "jbd2", "dput", "dget", "__d_lookup", "d_path", "lookup", "__lookup", "link_path", "path_", "walk_component",
        "step_into", "do_filp", "getname", "inode", "bio_", "submit_bio", "blk_", "nvme", "virtblk", "nfs", "tmpfs",
        "shmem", "do_sys_open", "do_statx", "sys_open", "sys_newfstat", "sys_stat", "sys_read", "sys_write",
        "sys_close", "page_cache", "folio_", "writeback", "splice", "do_sendfile", "pagecache", "__fput", "fput",
    ]),
    (Work::Memory, &[
        "do_anonymous", "handle_mm", "__handle_mm", "do_user_addr_fault", "exc_page_fault", "asm_exc_page",
        "clear_page", "unmap_", "zap_", "mmap_", "do_mmap", "vm_", "vma_", "__alloc_pages", "get_page",
        "alloc_pages", "free_unref", "lru_", "do_wp", "wp_page", "sys_mmap", "sys_munmap", "sys_brk", "sys_madvise",
        "tlb_", "flush_tlb", "kmem_", "kmalloc", "kfree", "__kmalloc", "slab", "___slab", "__slab", "mas_", "mt_",
        "shrink_", "try_to_free", "compact", "page_fault", "do_fault", "__do_fault", "do_cow",
    ]),
    (Work::Scheduling, &[
        "schedule", "__schedule", "finish_task_switch", "pick_next", "enqueue", "dequeue", "try_to_wake", "ttwu",
        "wake_up", "futex", "do_futex", "sys_futex", "update_curr", "kernel_clone", "copy_process", "dup_m",
        "do_exit", "exit_mm", "do_group_exit", "begin_new_exec", "bprm", "load_elf", "do_execve", "sys_exec",
        "sys_clone", "sys_fork", "wait4", "do_wait", "sys_exit", "sys_sched", "hrtimer", "tick_", "ctx_sched",
        "load_balance", "sched_", "nanosleep", "sys_clock_nanosleep",
    ]),
];

fn begins(table: &Table, name: &str) -> Option<Work> {
    table.iter().find(|(_, names)| names.iter().any(|begin| name.starts_with(begin))).map(|(work, _)| *work)
}

/// What writes to files in the kernel; of Apache these are logs, and pipes to programs that keep them.
#[rustfmt::skip] // a table
const FILE_WRITES: &[&str] = &[
    "ksys_write", "vfs_write", "generic_perform_write", "file_update_time", "ext4_buffered_write", "ext4_da_write",
    "iomap_file_buffered_write", "xfs_file_buffered_write", "btrfs_buffered_write", "anon_pipe_write", "pipe_write",
];

fn is_log_write<'a>(program: &str, mut kernel: impl Iterator<Item = &'a str> + Clone) -> bool {
    ["apache2", "httpd"].iter().any(|begin| program.starts_with(begin))
        && !kernel.clone().any(|name| name.starts_with("sock_"))
        && kernel.any(|name| FILE_WRITES.iter().any(|begin| name.starts_with(begin)))
}

/// What a function of one of the objects is for that have a table of their own.
fn of_object(program: &str, object: &str, name: &str) -> Option<Work> {
    let name = name.trim_start_matches('~');
    let is_of = |(begin, objects, _): &&(&str, &[&str], &Table)| {
        program.starts_with(begin) && objects.iter().any(|begin| object.starts_with(begin))
    };
    OF_OBJECTS.iter().filter(is_of).find_map(|(.., table)| begins(table, name))
}

/// What a place is for: `PROGRAM;OBJECT;FUNCTION..`, and the program or object that tells it.
pub(super) fn work(place: &str) -> (Work, &str) {
    let mut names = place.split(';');
    let (program, object) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    let of_program = || begins(PROGRAMS, program).unwrap_or(Work::Application);
    if object == KERNEL {
        if is_log_write(program, names.clone()) {
            return (Work::Logging, KERNEL);
        }
        let found = names.rev().find_map(|name| begins(KERNEL_FUNCTIONS, name));
        let of_thread = || begins(PROGRAMS, program).filter(|_| program.starts_with('['));
        return (found.or_else(of_thread).unwrap_or(Work::Kernel), KERNEL);
    }
    let function = names.next_back();
    let known = |name| of_object(program, object, name).or_else(|| begins(FUNCTIONS, name));
    match function.and_then(known).or_else(|| begins(OBJECTS, object)) {
        Some(work) if !object.starts_with('[') => (work, object),
        _ => (of_program(), program),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_name_that_is_known_decides() {
        for (place, expected) in [
            ("apache2;libz.so.1.3.1;deflate", (Work::Compression, "libz.so.1.3.1")),
            ("apache2;libz.so.1.3.1", (Work::Compression, "libz.so.1.3.1")),
            ("nginx;nginx;deflate_slow", (Work::Compression, "nginx")),
            ("nginx;libcrypto.so.3;EVP_DigestFinal", (Work::Cryptography, "libcrypto.so.3")),
            ("nginx;libcrypto.so.3;~BN_X931_generate_prime_ex", (Work::TlsHandshakes, "libcrypto.so.3")),
            ("nginx;libcrypto.so.3;BN_usub", (Work::TlsHandshakes, "libcrypto.so.3")),
            ("nginx;libcrypto.so.3;~MD5", (Work::Cryptography, "libcrypto.so.3")),
            ("php-fpm8.2;php-fpm8.2;zendparse", (Work::PhpCompilation, "php-fpm8.2")),
            ("php-fpm8.2;php-fpm8.2;~zend_unary_op_produces_error", (Work::PhpCompilation, "php-fpm8.2")),
            ("php-fpm8.2;php-fpm8.2;~zend_hash_find", (Work::Php, "php-fpm8.2")),
            ("apache2;libpcre2-8.so.0;~pcre2_compile_8", (Work::Settings, "libpcre2-8.so.0")),
            ("nginx;libpcre2-8.so.0;~pcre2_compile_8", (Work::Rewriting, "libpcre2-8.so.0")),
            ("apache2;libapr-1.so.0;apr_vformatter", (Work::Logging, "libapr-1.so.0")),
            (
                "apache2;[kernel];ksys_write;vfs_write;ext4_file_write_iter;_copy_from_iter",
                (Work::Logging, KERNEL),
            ),
            ("apache2;[kernel];ksys_write;vfs_write;sock_write_iter;tcp_sendmsg", (Work::Network, KERNEL)),
            ("mariadbd;[kernel];ksys_write;vfs_write;ext4_file_write_iter", (Work::FileSystem, KERNEL)),
            ("apache2;apache2;ap_getword_conf", (Work::Settings, "apache2")),
            ("apache2;libphp8.2.so", (Work::Php, "libphp8.2.so")),
            ("apache2;opcache.so;zend_accel", (Work::Php, "opcache.so")),
            ("php-fpm8.2;[anon]", (Work::Php, "php-fpm8.2")),
            ("php-fpm8.2;libc.so.6", (Work::Php, "php-fpm8.2")),
            ("apache2;libc.so.6;memmove", (Work::Copy, "libc.so.6")),
            ("apache2;libpcre2-8.so.0", (Work::Rewriting, "libpcre2-8.so.0")),
            ("apache2;mod_rewrite.so", (Work::Rewriting, "mod_rewrite.so")),
            ("apache2;mod_log_config.so", (Work::Logging, "mod_log_config.so")),
            ("apache2;mod_mpm_event.so", (Work::Server, "mod_mpm_event.so")),
            ("mariadbd;mariadbd;_ZN4JOIN4execEv", (Work::Database, "mariadbd")),
            ("python3.11;python3.11;_PyEval_EvalFrameDefault", (Work::Application, "python3.11")),
            ("gzip;gzip", (Work::Compression, "gzip")),
            ("[unknown];[unknown]", (Work::Application, "[unknown]")),
            ("nginx;[kernel];sys_writev;sock_write_iter;tcp_sendmsg;_raw_spin_lock", (Work::Network, KERNEL)),
            ("nginx;[kernel];sys_writev;tcp_sendmsg_locked;_copy_from_iter", (Work::Copy, KERNEL)),
            ("nginx;[kernel];sys_openat;link_path_walk;dput", (Work::FileSystem, KERNEL)),
            ("nginx;[kernel];asm_exc_page_fault;clear_page_erms", (Work::Memory, KERNEL)),
            ("nginx;[kernel];__schedule;_raw_spin_unlock", (Work::Scheduling, KERNEL)),
            ("nginx;[kernel]", (Work::Kernel, KERNEL)),
            ("[ksoftirqd];[kernel];_raw_spin_lock", (Work::Network, KERNEL)),
            ("", (Work::Application, "")),
        ] {
            assert_eq!(work(place), expected, "{place}");
        }
    }
}
