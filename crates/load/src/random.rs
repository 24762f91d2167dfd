//! Random numbers that one seed repeats everywhere: splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
//! Generators, 2014). Its quality is plenty for gaps, choices and think times.

/// splitmix64.
#[derive(Debug, Clone, Default)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    /// The numbers of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Numbers of their own for thing `number` of a kind, of the same seed: what one draws does not move the others.
    pub(crate) fn stream(seed: u64, kind: u64, number: u64) -> Self {
        let mut mixed = Self(seed ^ kind.wrapping_mul(0xA24B_AED4_963E_E407));
        let base = mixed.next();
        let mut own = Self(base ^ number.wrapping_mul(0x9FB2_1C65_1E98_DF25));
        Self(own.next())
    }

    /// Even over all of 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Even in [0, 1).
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
