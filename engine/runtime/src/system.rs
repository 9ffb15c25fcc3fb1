//! Memory from the system, on huge pages if it has them.

/// The size of a huge page. Blocks of this size and more are aligned to it.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

pub(crate) use mapping::Mapping;

#[cfg(target_os = "linux")]
mod mapping {
    use std::ptr::NonNull;

    use super::HUGE_PAGE;

    /// A private mapping, initially zero. Users of the pointer must not write through a shared
    /// reference.
    pub(crate) struct Mapping {
        start: NonNull<u8>,
        size_bytes: usize,
    }

    // SAFETY: it owns its bytes and does not access them.
    unsafe impl Send for Mapping {}
    // SAFETY: as above; a shared reference only gives the address.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// Maps `size_bytes`, a multiple of the page size; `None` if there is not enough memory.
        pub(crate) fn new(size_bytes: usize) -> Option<Mapping> {
            let is_huge = HUGE_PAGE <= size_bytes;
            // Maps enough to contain an aligned range; the rest is unmapped again.
            let spare = if is_huge { HUGE_PAGE } else { 0 };
            let mapped_bytes = size_bytes.checked_add(spare)?;
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping at an address that the system chooses affects no other memory.
            let mapped =
                unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, access, kind, -1, 0) };
            if mapped == libc::MAP_FAILED {
                return None;
            }
            let mapped = mapped.cast::<u8>();
            let before = mapped.align_offset(if is_huge { HUGE_PAGE } else { 1 });
            let start = NonNull::new(mapped.wrapping_add(before))?;
            if is_huge {
                let end = start.as_ptr().wrapping_add(size_bytes);
                for (part, bytes) in [(mapped, before), (end, spare - before)] {
                    if 0 < bytes {
                        // SAFETY: these are whole pages of the new mapping, which is not used yet.
                        unsafe { libc::munmap(part.cast(), bytes) };
                    }
                }
                // SAFETY: the range is mapped; the call is only advice and may fail.
                unsafe { libc::madvise(start.as_ptr().cast(), size_bytes, libc::MADV_HUGEPAGE) };
            }
            Some(Mapping { start, size_bytes })
        }

        pub(crate) fn size_bytes(&self) -> usize {
            self.size_bytes
        }

        pub(crate) fn as_ptr(&self) -> *mut u8 {
            self.start.as_ptr()
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the range was mapped in `new`, has no other owner and is not used any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.size_bytes) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod mapping {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    use super::HUGE_PAGE;

    /// As on Linux, from the global allocator.
    pub(crate) struct Mapping {
        start: NonNull<u8>,
        layout: Layout,
    }

    // SAFETY: it owns its bytes and does not access them.
    unsafe impl Send for Mapping {}
    // SAFETY: as above; a shared reference only gives the address.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        pub(crate) fn new(size_bytes: usize) -> Option<Mapping> {
            let align = if HUGE_PAGE <= size_bytes { HUGE_PAGE } else { 64 };
            let layout = Layout::from_size_align(size_bytes, align).ok()?;
            // SAFETY: the pool does not allocate empty blocks.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
            Some(Mapping { start, layout })
        }

        pub(crate) fn size_bytes(&self) -> usize {
            self.layout.size()
        }

        pub(crate) fn as_ptr(&self) -> *mut u8 {
            self.start.as_ptr()
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: it came from `alloc_zeroed` with this layout and is not used any more.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}
