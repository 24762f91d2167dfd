//! Names of functions by their address: of the kernel, and of programs and shared objects.
//!
//! Facts: proc_kallsyms(5) (`ADDRESS TYPE NAME`; all addresses are zero for whom `kernel.kptr_restrict` hides them), and elf(5):
//! what an object exports for others stands in `.dynsym` and is left there when it is stripped; `.symtab` has the rest. Where
//! a stripped object's function is its own, the nearest name before it tells where it lies, and is marked as no more than that:
//! linkers keep the functions of a source file together, and `make` those of a folder.

use object::read::{ObjectSegment, ObjectSymbol};
use object::{Object, SymbolKind};
use std::fs::File;
use std::io::Read;

/// Names of one object that are kept: some programs have millions.
const SYMBOLS_MAX: usize = 300_000;
/// A larger file is not read for the names in it.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Functions by their addresses.
#[derive(Debug, Default)]
pub(super) struct SymbolTable {
    names: String,
    /// Begin, end, and where its name begins in `names`, in order.
    functions: Vec<(u64, u64, u32)>,
}

impl SymbolTable {
    fn push(&mut self, begin: u64, end: u64, name: &str) {
        let Ok(at) = u32::try_from(self.names.len()) else { return };
        if self.functions.len() < SYMBOLS_MAX {
            self.functions.push((begin, end, at));
            self.names.push_str(name);
            self.names.push('\n');
        }
    }

    /// In order; of several names of one function the first stays.
    fn sorted(mut self) -> Self {
        self.functions.sort_by_key(|(begin, ..)| *begin);
        self.functions.dedup_by_key(|(begin, ..)| *begin);
        self
    }

    /// The function that an address is in.
    pub(super) fn name(&self, address: u64) -> Option<&str> {
        self.nearest(address).filter(|(_, is_in)| *is_in).map(|(name, _)| name)
    }

    /// The last function that begins before an address, and whether it reaches to it.
    fn nearest(&self, address: u64) -> Option<(&str, bool)> {
        let after = self.functions.partition_point(|(begin, ..)| *begin <= address);
        let (_, end, at) = self.functions.get(after.checked_sub(1)?)?;
        Some((self.names.get(*at as usize..)?.lines().next()?, address < *end))
    }

    /// The functions in the text of `/proc/kallsyms`, each up to the next; none where their addresses are hidden.
    pub(super) fn of_kernel(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let address = u64::from_str_radix(address, 16).unwrap_or(0);
            if address != 0 && matches!(kind, "t" | "T" | "w" | "W") {
                table.push(address, u64::MAX, name);
            }
        }
        table.sorted()
    }
}

/// A program or shared object.
#[derive(Debug, Default)]
pub(super) struct SharedObject {
    /// Where parts of the file are in its own addresses: offset, length, address.
    segments: Vec<(u64, u64, u64)>,
    symbols: SymbolTable,
}

impl SharedObject {
    /// Reads an object; one that is none, or too large, has no names.
    pub(super) fn of(mut file: File) -> Self {
        let is_small = |about: std::fs::Metadata| about.is_file() && about.len() <= FILE_BYTES_MAX;
        let mut bytes = vec![];
        if !file.metadata().is_ok_and(is_small) || file.read_to_end(&mut bytes).is_err() {
            return Self::default();
        }
        object::File::parse(&*bytes).map_or_else(|_| Self::default(), |object| Self::of_parsed(&object))
    }

    fn of_parsed<'a>(object: &impl Object<'a>) -> Self {
        let segments = object.segments().map(|part| {
            let (offset, length) = part.file_range();
            (offset, length, part.address())
        });
        let mut symbols = SymbolTable::default();
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            let is_function =
                symbol.kind() == SymbolKind::Text && symbol.is_definition() && symbol.size() > 0;
            if let Ok(name) = symbol.name()
                && is_function
            {
                symbols.push(symbol.address(), symbol.address().saturating_add(symbol.size()), name);
            }
        }
        Self { segments: segments.collect(), symbols: symbols.sorted() }
    }

    /// The function at an offset of the file; `~NAME` where it has no name and lies behind that one.
    pub(super) fn name(&self, offset: u64) -> Option<String> {
        let is_in =
            |(begin, length, _): &&(u64, u64, u64)| (*begin..begin.saturating_add(*length)).contains(&offset);
        let (begin, _, address) = self.segments.iter().find(is_in)?;
        let (name, is_in) = self.symbols.nearest(address.checked_add(offset - begin)?)?;
        Some(if is_in { name.to_owned() } else { format!("~{name}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_reaches_to_the_next_and_hidden_addresses_name_none() {
        let text = "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000100 d data\n\
            ffffffff81000200 t tcp_ack\t[tcp]\nnonsense\n";
        let table = SymbolTable::of_kernel(text);
        for (address, name) in [
            (0xffff_ffff_80ff_ffff, None),
            (0xffff_ffff_8100_01ff, Some("_stext")),
            (0xffff_ffff_8100_0200, Some("tcp_ack")),
            (0xffff_ffff_9000_0000, Some("tcp_ack")),
        ] {
            assert_eq!(table.name(address), name, "{address:x}");
        }
        assert_eq!(SymbolTable::of_kernel("0000000000000000 T _stext\n").name(5), None);
    }

    // An object that this test runs in, and an address outside of all has no name.
    #[test]
    fn functions_of_a_real_object_are_found_by_their_offset() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path =
            maps.lines().find_map(|line| line.find("/libc.so").map(|_| line.rsplit(' ').next().unwrap()));
        let own = SharedObject::of(File::open(path.unwrap()).unwrap());
        let (begin, end, _) = own.symbols.functions[own.symbols.functions.len() / 2];
        let name = own.symbols.name(begin).unwrap();
        let offset = own.segments.iter().find(|(_, length, at)| (*at..at + length).contains(&begin));
        let offset = offset.map(|(offset, _, address)| offset + (begin - address)).unwrap();
        assert_eq!(own.name(offset).as_deref(), Some(name));
        let gap = own.symbols.functions.windows(2).find(|pair| pair[0].1 < pair[1].0).unwrap()[0];
        let (name, near) = (own.symbols.name(gap.0).unwrap(), own.symbols.nearest(gap.1).unwrap());
        assert_eq!((near, own.symbols.name(gap.1)), ((name, false), None));
        assert!(end > begin && own.name(u64::MAX).is_none());
        let text = SharedObject::of(File::open("/proc/self/status").unwrap());
        assert_eq!(text.name(0), None);
    }
}
