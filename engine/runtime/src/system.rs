//! Memory from the system, on huge pages where it has them.

/// Blocks of this size and more are aligned to it and lie on pages of it if the system can.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

pub(crate) use mapping::Mapping;

#[cfg(target_os = "linux")]
mod mapping {
    use std::ptr::NonNull;

    use super::HUGE_PAGE;

    /// Bytes of its own, zero at first. Never written through a shared reference to it: whoever
    /// has the pointer sees to that.
    pub(crate) struct Mapping {
        start: NonNull<u8>,
        size_bytes: usize,
    }

    // SAFETY: it owns its bytes and does nothing with them.
    unsafe impl Send for Mapping {}
    // SAFETY: as above; a shared reference gives no more than the address.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// So many bytes, a multiple of the size of a page; `None` if there are not so many.
        pub(crate) fn new(size_bytes: usize) -> Option<Mapping> {
            let is_huge = HUGE_PAGE <= size_bytes;
            // Enough that an aligned part is in it; what stands before and behind goes back.
            let spare = if is_huge { HUGE_PAGE } else { 0 };
            let mapped_bytes = size_bytes.checked_add(spare)?;
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a new mapping at an address that the system chooses touches nothing.
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
                        // SAFETY: whole pages of the mapping just made, which nobody else knows.
                        unsafe { libc::munmap(part.cast(), bytes) };
                    }
                }
                // SAFETY: the range is mapped; it is advice, and its failure is of no matter.
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
            // SAFETY: the range was mapped in `new`, belongs to this alone and is gone now.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.size_bytes) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod mapping {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    use super::HUGE_PAGE;

    /// As on Linux, from the allocator of the program.
    pub(crate) struct Mapping {
        start: NonNull<u8>,
        layout: Layout,
    }

    // SAFETY: it owns its bytes and does nothing with them.
    unsafe impl Send for Mapping {}
    // SAFETY: as above; a shared reference gives no more than the address.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        pub(crate) fn new(size_bytes: usize) -> Option<Mapping> {
            let align = if HUGE_PAGE <= size_bytes { HUGE_PAGE } else { 64 };
            let layout = Layout::from_size_align(size_bytes, align).ok()?;
            // SAFETY: the pool asks for no empty blocks.
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
            // SAFETY: it came from `alloc_zeroed` with this layout and is gone now.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}
