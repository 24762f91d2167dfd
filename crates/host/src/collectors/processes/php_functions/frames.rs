//! Which function of PHP a process is in, read from its memory.
//!
//! Facts: php-src, Zend/zend_globals.h (`executor_globals`: `vm_stack_top`, `vm_stack_end`, `vm_stack`, `vm_stack_page_size`,
//! `current_execute_data` behind each other, since PHP 7.3), zend_compile.h (`zend_execute_data`, `zend_op_array`,
//! `zend_internal_function`) and zend_types.h (`zend_string`). What stands where in `executor_globals` and where the file of a
//! function is differ from version to version: both are found by what they are, so no version has to be known. All of this is
//! of 64-bit machines.

/// The memory of another process.
pub(super) trait Memory {
    /// Fills `into` from an address; false where that cannot be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

/// So much of `executor_globals` has what is looked for.
const GLOBALS_BYTES: usize = 1024;
/// A page of the stack of PHP's virtual machine: `ZEND_VM_STACK_PAGE_SIZE`.
const STACK_PAGE_BYTES: u64 = 256 * 1024;
/// Calls below each other that are looked at until one is of a script.
const FRAMES_MAX: usize = 16;
/// `zend_execute_data`: the function, and the frame that called.
const FRAME_BYTES: usize = 56;
const FRAME_FUNCTION: usize = 24;
const FRAME_CALLER: usize = 48;
/// The head of all functions: kind, name, class.
const FUNCTION_BYTES: usize = 24;
const FUNCTION_NAME: usize = 8;
const FUNCTION_CLASS: usize = 16;
/// Kinds of functions: PHP's own, those of scripts, and code that is evaluated.
const INTERNAL: u8 = 1;
const USER: u8 = 2;
const EVALUATED: u8 = 4;
/// The name of a class in `zend_class_entry`.
const CLASS_NAME: u64 = 8;
/// Where the file of a function may stand in `zend_op_array`.
const FILES_FROM: u64 = 112;
const FILES_WORDS: usize = 14;
/// `zend_string`: its length, and its bytes.
const STRING_LENGTH: usize = 16;
const STRING_BYTES: usize = 24;
/// More of a name is not read.
const NAME_BYTES_MAX: usize = 256;
const LENGTH_MAX: u64 = 4096;
const CLOSURE: &str = "{closure}";

/// What code is told as whose name cannot be told.
pub(super) const OTHERS: &str = "others";

/// Where `current_execute_data` stands in `executor_globals`, told by the page size before it and the three pointers before that.
/// `None` before the first request of a process.
pub(super) fn current_frame_offset(memory: &impl Memory, globals: u64) -> Option<u64> {
    let mut bytes = [0; GLOBALS_BYTES];
    let words = memory.read(globals, &mut bytes).then(|| words(&bytes))?;
    let at = words.windows(4).position(|four| {
        let [top, end, stack, page] = four else { return false };
        *page == STACK_PAGE_BYTES && *stack > 0 && stack < top && top <= end
    })?;
    (at + 4 < words.len()).then_some(8 * (at as u64 + 4))
}

/// The function of a script that is executed, with the function of PHP itself that it has called, if it is in one:
/// `Shop::prices;usleep`. `None` where no script is executed, or the memory changed while it was read; [`OTHERS`] where a script is, and
/// its name cannot be told: it counts all the same.
pub(super) fn current_function(memory: &impl Memory, globals: u64, offset: u64) -> Option<String> {
    let (mut frame, mut called) = (word(memory, globals + offset)?, None);
    for _ in 0..FRAMES_MAX {
        let mut bytes = [0; FRAME_BYTES];
        if frame == 0 || !memory.read(frame, &mut bytes) {
            return None;
        }
        let function = word_at(&bytes, FRAME_FUNCTION);
        frame = word_at(&bytes, FRAME_CALLER);
        let mut head = [0; FUNCTION_BYTES];
        // A frame that is being made has no function yet.
        if function == 0 || !memory.read(function, &mut head) {
            continue;
        }
        match head[0] {
            INTERNAL => called = called.or_else(|| function_name(memory, &head)),
            USER | EVALUATED => {
                let Some(place) = place(memory, function, &head) else { return Some(OTHERS.to_owned()) };
                return Some(called.map_or(place.clone(), |called| format!("{place};{called}")));
            }
            _ => return None,
        }
    }
    None
}

/// What a function of a script is told as: its name, of a closure with the file, and of what stands outside of functions the file.
fn place(memory: &impl Memory, function: u64, head: &[u8; FUNCTION_BYTES]) -> Option<String> {
    if word_at(head, FUNCTION_NAME) == 0 {
        return file_name(memory, function);
    }
    let name = function_name(memory, head)?;
    if !name.ends_with(CLOSURE) {
        return Some(name);
    }
    file_name(memory, function).map(|file| format!("{name}@{file}"))
}

/// Whether a text can be the name of a function, a class or a file of scripts. What is read while it changes may be anything, a
/// secret too: no more than names is told.
fn is_name(text: &str) -> bool {
    let allowed =
        |letter: char| letter.is_ascii_alphanumeric() || "_\\{}:().-@".contains(letter) || !letter.is_ascii();
    text.chars().all(allowed)
}

/// The name of a function, with its class; `None` for what stands outside of functions. That of a closure has where it stands in it
/// since PHP 8.4: `{closure:/srv/page.php:12}`.
fn function_name(memory: &impl Memory, head: &[u8; FUNCTION_BYTES]) -> Option<String> {
    let name = string(memory, word_at(head, FUNCTION_NAME))?;
    let name = match name.split_once("{closure") {
        Some((before, _)) => format!("{before}{CLOSURE}"),
        None => name,
    };
    let name = Some(name).filter(|name| is_name(name))?;
    let class = Some(word_at(head, FUNCTION_CLASS)).filter(|class| *class != 0);
    let class = class.and_then(|class| string(memory, word(memory, class.checked_add(CLASS_NAME)?)?));
    let class = class.filter(|class| is_name(class));
    Some(class.map_or(name.clone(), |class| format!("{class}::{name}")))
}

/// The last part of the path of a script's function: the only string there that is an absolute path. Of what is evaluated it goes on:
/// `/srv/page.php(12) : eval()'d code`.
fn file_name(memory: &impl Memory, function: u64) -> Option<String> {
    let mut bytes = [0; 8 * FILES_WORDS];
    memory.read(function + FILES_FROM, &mut bytes).then_some(())?;
    let path = words(&bytes).into_iter().filter_map(|address| string(memory, address));
    let path = path.into_iter().find(|text| text.starts_with('/'))?;
    let name = path.rsplit('/').next()?;
    let within = name.split_once(") : ").and_then(|(place, _)| place.rsplit_once('('));
    let name = within.map_or(name, |(name, _)| name);
    is_name(name).then(|| name.to_owned())
}

/// A string of PHP that may be a name; of a long one its end, as that of a path tells more.
fn string(memory: &impl Memory, address: u64) -> Option<String> {
    let mut head = [0; STRING_BYTES];
    if address == 0 || !address.is_multiple_of(8) || !memory.read(address, &mut head) {
        return None;
    }
    let length = word_at(&head, STRING_LENGTH);
    (1..=LENGTH_MAX).contains(&length).then_some(())?;
    let kept = length.min(NAME_BYTES_MAX as u64);
    let from = if kept < length && first_byte(memory, address)? == b'/' { length - kept } else { 0 };
    let mut text = vec![0; kept as usize];
    memory.read(address + STRING_BYTES as u64 + from, &mut text).then_some(())?;
    if from > 0 {
        text.insert(0, b'/');
    }
    // What PHP itself appends to names of anonymous classes.
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text).into_owned();
    (!text.is_empty() && !text.chars().any(char::is_control)).then_some(text)
}

fn first_byte(memory: &impl Memory, string: u64) -> Option<u8> {
    let mut byte = [0];
    memory.read(string + STRING_BYTES as u64, &mut byte).then_some(byte[0])
}

fn word(memory: &impl Memory, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(address, &mut bytes).then(|| u64::from_ne_bytes(bytes))
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u64::from_ne_bytes(*word))
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Words by their addresses.
    #[derive(Default)]
    struct Made(BTreeMap<u64, u64>);

    impl Memory for Made {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            for (at, byte) in into.iter_mut().enumerate() {
                let address = address + at as u64;
                let Some(word) = self.0.get(&(address / 8 * 8)) else { return false };
                *byte = word.to_ne_bytes()[(address % 8) as usize];
            }
            true
        }
    }

    impl Made {
        fn fill(&mut self, at: u64, words: &[u64]) -> u64 {
            self.0.extend(words.iter().enumerate().map(|(index, word)| (at + 8 * index as u64, *word)));
            at
        }

        fn text(&mut self, at: u64, text: &str) -> u64 {
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(text.len().next_multiple_of(8), 0);
            self.fill(at, &[1, 0, text.len() as u64]);
            self.fill(at + 24, &words(&bytes)).checked_sub(24).expect("it stands behind its head")
        }

        fn function(&mut self, at: u64, kind: u64, name: u64, class: u64, file: u64) -> u64 {
            let mut words = [0; 28];
            (words[0], words[1], words[2], words[19]) = (kind, name, class, file);
            self.fill(at, &words)
        }

        fn frame(&mut self, at: u64, function: u64, caller: u64) -> u64 {
            self.fill(at, &[0, 0, 0, function, 0, 0, caller])
        }

        /// A script whose function calls usleep, with the globals at 0x1000.
        fn sleeping() -> Self {
            let mut made = Self::default();
            let file = made.text(0x100, "/srv/www/shop/page.php");
            let (usleep, prices, shop) =
                (made.text(0x200, "usleep"), made.text(0x300, "prices"), made.text(0x400, "Shop"));
            let class = made.fill(0x500, &[2, shop]);
            let internal = made.function(0x2000, 1, usleep, 0, 0);
            let method = made.function(0x3000, 2, prices, class, file);
            let script = made.function(0x4000, 2, 0, 0, file);
            let first = made.frame(0x5000, script, 0);
            let second = made.frame(0x5100, method, first);
            let third = made.frame(0x5200, internal, second);
            made.fill(0x1000, &[0; 140]);
            made.fill(0x1000 + 8 * 57, &[0x9100, 0x9800, 0x9000, STACK_PAGE_BYTES, third]);
            made
        }
    }

    #[test]
    fn a_function_is_told_with_what_it_has_called() {
        let mut made = Made::sleeping();
        let offset = current_frame_offset(&made, 0x1000).unwrap();
        assert_eq!(offset, 8 * 61);
        for (frame, place) in [
            (0x5200, Some("Shop::prices;usleep")),
            (0x5100, Some("Shop::prices")),
            (0x5000, Some("page.php")),
            (0, None),
            (0x7000, None),
        ] {
            made.fill(0x1000 + offset, &[frame]);
            assert_eq!(current_function(&made, 0x1000, offset).as_deref(), place, "{frame:x}");
        }
    }

    /// What `Shop::prices`, of this kind, in this file, is told as under this name; an empty one is none.
    fn told(kind: u64, name: &str, file: &str) -> Option<String> {
        let mut made = Made::sleeping();
        let offset = current_frame_offset(&made, 0x1000).unwrap();
        let file = made.text(0x600, file);
        let name = if name.is_empty() { 0 } else { made.text(0x800, name) };
        made.function(0x3000, kind, name, 0x500, file);
        current_function(&made, 0x1000, offset)
    }

    #[test]
    fn closures_and_evaluated_code_are_told_with_their_file() {
        for (kind, name, file, place) in [
            (2, "{closure}", "/srv/page.php", "Shop::{closure}@page.php;usleep"),
            (2, "{closure:/srv/my page.php:12}", "/srv/page.php", "Shop::{closure}@page.php;usleep"),
            (2, "{closure:{closure:/srv/p.php:2}:12}", "/srv/page.php", "Shop::{closure}@page.php;usleep"),
            (4, "", "/srv/page.php(12) : eval()'d code", "page.php;usleep"),
            (4, "", "/srv/a(1).php(12) : eval()'d code(1) : eval()'d code", "a(1).php;usleep"),
            (2, "", "/srv/page.php", "page.php;usleep"),
            (2, "prices", "/srv/my page.php", "Shop::prices;usleep"),
        ] {
            assert_eq!(told(kind, name, file).as_deref(), Some(place), "{kind} {name} {file}");
        }
    }

    // A string that took the place of a name meanwhile, too. The look counts: a share is of all of them.
    #[test]
    fn what_is_no_name_is_not_told() {
        let untold = ["s3cret pass", "a=b&token=1", "<p>", "x\"y"].map(|name| (2, name, "/srv/page.php"));
        let files =
            [(2, "", "/srv/my page.php"), (4, "", "/srv/[id]+.php"), (2, "{closure}", "/srv/a b.php")];
        for (kind, name, file) in untold.into_iter().chain(files) {
            assert_eq!(told(kind, name, file).as_deref(), Some(OTHERS), "{name} {file}");
        }
        assert_eq!(told(7, "prices", "/srv/page.php"), None, "no function");
    }

    #[test]
    fn before_the_first_request_nothing_is_found() {
        let mut made = Made::default();
        made.fill(0x1000, &[0; 128]);
        assert_eq!(current_frame_offset(&made, 0x1000), None);
        assert_eq!(current_frame_offset(&made, 0x9000), None, "it cannot be read");
    }

    proptest! {
        // A script goes on while it is looked at: whatever stands there then, it is no more than not told.
        #[test]
        fn memory_that_changes_is_read_all_the_same(changes in prop::collection::vec((0_u64..0xc00, any::<u64>()), 0..40)) {
            let mut made = Made::sleeping();
            for (at, word) in changes {
                made.fill(8 * at, &[word]);
            }
            let offset = current_frame_offset(&made, 0x1000).unwrap_or(8 * 61);
            let found = current_function(&made, 0x1000, offset);
            prop_assert!(found.is_none_or(|place| !place.is_empty() && place.len() <= 8 * NAME_BYTES_MAX));
        }
    }
}
