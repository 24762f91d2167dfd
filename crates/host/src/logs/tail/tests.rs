//! Logs that grow, are rotated, cut, removed, flooded and garbled while they are followed.

use super::*;
use proptest::prelude::*;
use std::io::Write;

struct Log {
    folder: tempfile::TempDir,
    file: File,
}

impl Log {
    fn with(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = Self::file(&folder.path().join("log"));
        let mut log = Self { folder, file };
        log.add(text);
        log
    }

    fn file(path: &Path) -> File {
        File::options().create(true).append(true).open(path).unwrap()
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn add(&mut self, text: &str) {
        self.file.write_all(text.as_bytes()).unwrap();
    }
}

fn read_lines(tail: &mut Tail) -> Vec<String> {
    let mut lines = vec![];
    tail.read(|line| lines.push(String::from_utf8_lossy(line).into_owned()));
    lines
}

#[test]
fn whole_lines_come_once_and_nothing_from_before() {
    let mut log = Log::with("old\nbeing writ");
    let mut tail = Tail::of(&log.path()).unwrap();
    assert_eq!(read_lines(&mut tail), Vec::<String>::new());
    log.add("ten\na\nb");
    assert_eq!(read_lines(&mut tail), ["a"]);
    log.add("c");
    assert_eq!(read_lines(&mut tail), Vec::<String>::new());
    log.add("d\n\ne\n");
    assert_eq!(read_lines(&mut tail), ["bcd", "", "e"]);
}

#[test]
fn a_log_that_is_rotated_loses_no_line() {
    let mut log = Log::with("");
    let mut tail = Tail::of(&log.path()).unwrap();
    log.add("a\n");
    std::fs::rename(log.path(), log.folder.path().join("log.1")).unwrap();
    // Apache goes on writing to the old file until it is reloaded.
    log.add("b\n");
    assert_eq!(read_lines(&mut tail), ["a", "b"]);
    log.add("c\n");
    log.file = Log::file(&log.path());
    log.add("d\nd\n");
    assert_eq!(read_lines(&mut tail), ["c", "d", "d"]);
    // Copied and cut.
    log.file.set_len(0).unwrap();
    log.add("e\n");
    assert_eq!(read_lines(&mut tail), ["e"]);
}

#[test]
fn of_a_flood_the_last_part_is_read() {
    let mut log = Log::with("");
    let mut tail = Tail::of(&log.path()).unwrap();
    let lines = (0..100_000).map(|number| format!("line {number}\n")).collect::<String>();
    log.add(&lines);
    let seen = read_lines(&mut tail);
    assert_eq!(seen.last().unwrap(), "line 99999");
    assert!(seen.iter().map(|line| line.len() as u64 + 1).sum::<u64>() < READ_BYTES_MAX);
    assert!(lines.ends_with(&format!("\n{}\n", seen.join("\n"))), "a torn line: {}", seen[0]);
}

#[test]
fn only_plain_files_are_followed() {
    for (path, why) in [("/dev/null", "it is a stream"), ("/tmp", "it is no file")] {
        assert_eq!(Tail::of(Path::new(path)).unwrap_err().to_string(), why);
    }
    assert!(Tail::of(Path::new("/no/such/log")).is_err());
}

#[test]
fn workers_that_finish_go_on_writing_to_the_old_file() {
    let mut log = Log::with("");
    let mut tail = Tail::of(&log.path()).unwrap();
    std::fs::rename(log.path(), log.folder.path().join("log.1")).unwrap();
    assert!(tail.read(|_| ()).is_gone);
    let mut new = Log::file(&log.path());
    new.write_all(b"new\n").unwrap();
    assert_eq!(read_lines(&mut tail), ["new"]);
    log.add("old\n");
    new.write_all(b"newer\n").unwrap();
    assert_eq!(read_lines(&mut tail), ["old", "newer"]);
}

#[test]
fn a_log_that_was_cut_and_grew_past_its_old_length_is_read_from_its_beginning() {
    let mut log = Log::with("10:00:01 GET /\n");
    let mut tail = Tail::of(&log.path()).unwrap();
    log.file.set_len(0).unwrap();
    log.add("10:00:02 GET /a\n10:00:03 GET /b\n");
    let mut lines = 0;
    let looked = tail.read(|_| lines += 1);
    assert!(looked.is_cut && lines == 2, "{looked:?}");
    // A program that does not append leaves a hole; what is behind it is read.
    let hole = 100_000;
    log.file.set_len(0).unwrap();
    log.file.set_len(hole).unwrap();
    log.add("x\n10:00:04 GET /c\n");
    let mut last = vec![];
    let looked = tail.read(|line| last = line.to_vec());
    assert!(looked.is_cut && looked.grown_bytes == hole + 18, "{looked:?}");
    assert_eq!(last, b"10:00:04 GET /c");
}

#[test]
fn of_a_flood_what_was_not_read_is_told_and_samples_come_from_all_of_it() {
    for part in [Part::Last, Part::Spread] {
        let mut log = Log::with("");
        let mut tail = Tail::of(&log.path()).unwrap();
        let text: String = (0..100_000).map(|number| format!("{number:07}\n")).collect();
        log.add(&text);
        let mut numbers: Vec<u64> = vec![];
        let number = |line: &[u8]| std::str::from_utf8(line).unwrap().parse().unwrap();
        let looked = tail.read_within(80_000, part, |line| numbers.push(number(line)));
        assert_eq!((looked.grown_bytes, looked.unread_bytes), (800_000, 720_000));
        assert_eq!(looked.lines_count, numbers.len() as u64);
        assert!(looked.lines_bytes <= 80_000 && looked.lines_bytes > 79_000, "{looked:?}");
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        let mean = numbers.iter().sum::<u64>() / looked.lines_count;
        let expected = if part == Part::Last { 95_000 } else { 50_000 };
        assert!(mean.abs_diff(expected) < 1_000, "{mean}");
        log.add("0100000\n");
        assert_eq!(read_lines(&mut tail), ["0100000"], "nothing is torn after it");
    }
}

#[test]
fn a_line_without_end_takes_bounded_memory() {
    let mut log = Log::with("");
    let mut tail = Tail::of(&log.path()).unwrap();
    for _ in 0..10 {
        log.add(&"x".repeat(READ_BYTES_MAX as usize));
        assert_eq!(read_lines(&mut tail), Vec::<String>::new());
        assert!(tail.current.begun.capacity() <= 2 * LINE_BYTES_MAX);
    }
    log.add("\nb\n");
    let mut lengths = vec![];
    let looked = tail.read(|line| lengths.push(line.len()));
    assert_eq!(lengths, [LINE_BYTES_MAX, 1]);
    assert_eq!(looked.lines_bytes, 10 * READ_BYTES_MAX + 3);
    assert!(tail.current.begun.capacity() <= BEGUN_BYTES_KEPT);
}

#[test]
fn a_file_that_may_not_be_read_any_more_is_told() {
    let log = Log::with("");
    let mut tail = Tail::of(&log.path()).unwrap();
    std::fs::remove_file(log.path()).unwrap();
    std::fs::create_dir(log.path()).unwrap();
    assert!(tail.read(|_| ()).is_refused);
}

proptest! {
    // However a writer cuts its bytes into pieces, the lines are the same.
    #[test]
    fn lines_do_not_depend_on_when_it_is_looked(
        pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..40), 0..12)
    ) {
        let mut log = Log::with("");
        let mut tail = Tail::of(&log.path()).unwrap();
        let (mut seen, mut grown) = (vec![], 0);
        for piece in &pieces {
            log.file.write_all(piece).unwrap();
            let looked = tail.read(|line| seen.push(line.to_vec()));
            prop_assert!(!looked.is_cut && looked.unread_bytes == 0);
            grown += looked.grown_bytes;
        }
        let all = pieces.concat();
        prop_assert_eq!(grown, all.len() as u64);
        let mut expected: Vec<Vec<u8>> = all.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        expected.pop();
        prop_assert_eq!(seen, expected);
    }
}
