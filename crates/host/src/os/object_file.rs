//! Programs and shared objects as files, of which only the tables that are wanted are read: the programs of a server have tens of
//! megabytes, and an agent is to be small beside them.
//!
//! Facts: elf(5).

use object::read::{ReadCache, ReadRef};
use std::fs::File;
use std::io;
use std::ops::Range;

/// What is read at once of the names in an object.
const BLOCK_BYTES: u64 = 64 << 10;
/// A larger file is not read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A file of which the names are read in blocks: one by one, they would take several times their room.
#[derive(Debug, Clone, Copy)]
pub struct InBlocks<'a>(&'a ReadCache<File>);

impl<'a> ReadRef<'a> for InBlocks<'a> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.0.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let begin = range.start - range.start % BLOCK_BYTES;
        let block = self.0.read_bytes_at(begin, range.end.saturating_sub(begin).min(BLOCK_BYTES))?;
        let name = usize::try_from(range.start - begin).ok().and_then(|at| block.get(at..)).ok_or(())?;
        match name.iter().position(|byte| *byte == delimiter) {
            Some(end) => Ok(&name[..end]),
            None => self.0.read_bytes_at_until(range, delimiter),
        }
    }
}

/// What `read` finds in an object; `None` in a file that is none. An error where it is larger than 64 MB, or no regular file.
pub fn read_object<T>(
    file: File,
    read: impl for<'a> FnOnce(&object::File<'a, InBlocks<'a>>) -> T,
) -> io::Result<Option<T>> {
    let about = file.metadata()?;
    if !about.is_file() || about.len() > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("no regular file of up to {FILE_BYTES_MAX} bytes")));
    }
    let cache = ReadCache::new(file);
    Ok(object::File::parse(InBlocks(&cache)).ok().map(|object| read(&object)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Names begin in one block and end in the next one, or at the end of what is theirs.
    #[test]
    fn a_name_is_read_wherever_the_blocks_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        let mut bytes = vec![b'x'; BLOCK_BYTES as usize + 100];
        bytes[BLOCK_BYTES as usize + 50] = 0;
        std::fs::write(&path, &bytes).unwrap();
        let cache = ReadCache::new(File::open(&path).unwrap());
        let (file, end) = (InBlocks(&cache), bytes.len() as u64);
        for (begin, length) in [(BLOCK_BYTES - 10, 60), (BLOCK_BYTES + 10, 40), (BLOCK_BYTES + 50, 0)] {
            let name = file.read_bytes_at_until(begin..end, 0).unwrap();
            assert_eq!(name.len(), length, "{begin}");
        }
        assert!(file.read_bytes_at_until(BLOCK_BYTES + 60..end, 0).is_err(), "it has no end");
    }

    #[test]
    fn what_is_no_object_has_none_and_a_folder_is_refused() {
        let text = File::open("/proc/self/status").unwrap();
        assert_eq!(read_object(text, |_| ()).unwrap(), None);
        assert!(read_object(File::open("/").unwrap(), |_| ()).is_err());
    }
}
