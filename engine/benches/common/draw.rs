//! Rows that nobody has tuned for: the ops of `suite.txt`, with sizes, numbers and types from a
//! seed.

use fastrand::Rng;

/// Most elements of what is drawn by its shape alone; weights, and results of transposed
/// convolutions, have up to four times as many.
const ELEMENTS: i64 = 1 << 23;
/// Most multiply-adds of a row.
const PRODUCTS: i64 = 1 << 30;

/// Returns `count` rows as lines of `suite.txt`; the same for the same seed.
pub(crate) fn rows(seed: u64, count: usize) -> Vec<String> {
    let mut draw = Draw(Rng::with_seed(seed));
    (0..count).map(|_| format!("drawn | {}", draw.row())).collect()
}

struct Draw(Rng);

impl Draw {
    /// A size of up to `largest`, on a logarithmic scale: any, a multiple of 8 or a power of two,
    /// or next to it.
    fn size(&mut self, largest: i64) -> i64 {
        let any = (self.0.f64() * (largest as f64).ln()).exp() as i64;
        let size = match self.0.u32(..5) {
            0 | 1 => any,
            2 => (any + 7) / 8 * 8,
            3 => 1 << any.max(1).ilog2(),
            _ => (1 << any.max(1).ilog2()) + self.0.i64(-1..=1),
        };
        size.clamp(1, largest)
    }

    /// Sizes of up to `largest` each, with no more than `product` elements.
    fn sizes<const N: usize>(&mut self, largest: [i64; N], product: i64) -> [i64; N] {
        loop {
            let sizes = largest.map(|largest| self.size(largest));
            if sizes.iter().product::<i64>() <= product {
                return sizes;
            }
        }
    }

    fn of<'a>(&mut self, names: &[&'a str]) -> &'a str {
        names[self.0.usize(..names.len())]
    }

    fn float(&mut self) -> &'static str {
        self.of(&["f32", "f32", "f32", "f32", "f64", "f16", "bf16"])
    }

    /// A shape of 1 to 4 axes, and one of its axes.
    fn shape(&mut self) -> (String, usize) {
        let sizes: Vec<i64> = match self.0.u32(..4) {
            0 => self.sizes([ELEMENTS], ELEMENTS).to_vec(),
            1 => self.sizes([4096, 50_000], ELEMENTS).to_vec(),
            2 => self.sizes([256, 1024, 2048], ELEMENTS).to_vec(),
            _ => self.sizes([16, 512, 128, 128], ELEMENTS).to_vec(),
        };
        (join(&sizes), self.0.usize(..sizes.len()))
    }

    fn row(&mut self) -> String {
        match self.0.u32(..10) {
            0 | 1 => self.product(),
            2 | 3 => self.convolution(),
            4 | 5 => self.reduction(),
            6 => self.movement(),
            7 => self.lookup(),
            8 => self.attention(),
            _ => self.elementwise(),
        }
    }

    fn product(&mut self) -> String {
        let [batch, m, n, k] = self.sizes([32, 2048, 4096, 4096], PRODUCTS);
        let name = self.of(&["matmul", "matmul_t", "t_matmul", "linear", "linear_gelu"]);
        let dtype = if name.starts_with("linear") { "f32" } else { self.float() };
        let batch = if batch * (m * k + k * n + m * n) > ELEMENTS { 1 } else { batch };
        match name {
            "matmul" => format!("matmul | {dtype}[{batch},{m},{k}] {dtype}[{batch},{k},{n}]"),
            "matmul_t" => format!("matmul_t | {dtype}[{batch},{m},{k}] {dtype}[{batch},{n},{k}]"),
            "t_matmul" => format!("t_matmul | {dtype}[{batch},{k},{m}] {dtype}[{batch},{k},{n}]"),
            name => format!("{name} | {dtype}[{m},{k}] {dtype}[{n},{k}] {dtype}[{n}]"),
        }
    }

    fn convolution(&mut self) -> String {
        let name = self.of(&["conv", "conv_relu", "conv_relu", "conv_transpose", "pool"]);
        let stride = self.0.i64(1..=2);
        loop {
            let kernel = [1, 2, 3, 3, 4, 5, 7][self.0.usize(..7)];
            let [batch, groups, inputs, outputs] = self.sizes([8, 512, 512, 512], 1 << 19);
            let [height, width] = self.sizes([128, 128], 1 << 14).map(|size| size.max(2 * kernel));
            let groups = if self.0.bool() { 1 } else { groups };
            let (channels, filters) = (groups * inputs, groups * outputs);
            let places = batch * height * width;
            let padding = self.0.i64(0..=kernel / 2);
            let numbers = format!("stride={stride} padding={padding}");
            let images = format!("f32[{batch},{channels},{height},{width}]");
            let pixels = places * channels.max(filters);
            if name == "pool" && places * channels <= ELEMENTS && kernel > 1 {
                let kind = self.of(&["max_pool", "avg_pool"]);
                return format!("{kind} kernel={kernel} {numbers} | {images}");
            }
            if name == "pool"
                || pixels > ELEMENTS / 2
                || places * filters * inputs * kernel * kernel > PRODUCTS
            {
                continue;
            }
            let weights = match name {
                "conv_transpose" => format!("f32[{channels},{outputs},{kernel},{kernel}]"),
                _ => format!("f32[{filters},{inputs},{kernel},{kernel}]"),
            };
            let bias = if name == "conv_relu" { format!(" f32[{filters}]") } else { String::new() };
            return format!("{name} {numbers} groups={groups} | {images} {weights}{bias}");
        }
    }

    fn reduction(&mut self) -> String {
        let (shape, axis) = self.shape();
        let name = self.of(&[
            "sum",
            "mean",
            "max",
            "argmax",
            "var",
            "softmax",
            "log_softmax",
            "cumsum",
            "sum_all",
            "layer_norm",
        ]);
        let dtype = self.float();
        match name {
            "sum_all" | "layer_norm" => format!("{name} | {dtype}[{shape}]"),
            name => format!("{name} axis={axis} | {dtype}[{shape}]"),
        }
    }

    fn movement(&mut self) -> String {
        let dtype = self.of(&["f32", "f32", "f16", "u8", "f64"]);
        let name = self.of(&[
            "transpose",
            "add_transpose",
            "permute_0213",
            "permute_0231",
            "permute_0312",
            "permute_210",
            "permute_102",
            "flip",
            "cat",
            "pad",
            "interpolate",
            "causal_mask",
        ]);
        match name {
            "permute_0213" | "permute_0231" | "permute_0312" | "interpolate" => {
                let sizes = self.sizes([16, 512, 128, 128], ELEMENTS / 4);
                format!("{name} | {dtype}[{}]", join(&sizes))
            }
            "permute_210" | "permute_102" => {
                format!("{name} | {dtype}[{}]", join(&self.sizes([256, 512, 512], ELEMENTS)))
            }
            "add_transpose" => {
                let size = self.size(2048);
                format!("{name} | {dtype}[{size},{size}]")
            }
            "flip" => {
                let (shape, axis) = self.shape();
                format!("flip axis={axis} | {dtype}[{shape}]")
            }
            "cat" => {
                let [x, y, z] = self.sizes([1024, 1024, 2048], ELEMENTS);
                match self.0.bool() {
                    true => format!("cat axis=0 | {dtype}[{x},{z}] {dtype}[{y},{z}]"),
                    false => format!("cat axis=1 | {dtype}[{z},{x}] {dtype}[{z},{y}]"),
                }
            }
            name => format!("{name} | {dtype}[{}]", join(&self.sizes([3000, 3000], ELEMENTS))),
        }
    }

    fn lookup(&mut self) -> String {
        let [count, rows, width] = self.sizes([2048, 50_000, 1024], 1 << 30);
        let width = width.min(ELEMENTS / rows).min(ELEMENTS / count).max(1);
        match self.of(&["embedding", "gather", "cross_entropy", "one_hot"]) {
            "embedding" => format!("embedding | i64[{count}]<{rows} f32[{rows},{width}]"),
            "gather" => format!("gather axis=0 | f32[{rows},{width}] i64[{count},{width}]<{rows}"),
            "one_hot" => format!("one_hot classes={width} | i64[{count}]<{width}"),
            _ => format!("cross_entropy | f32[{count},{width}] i64[{count}]<{width}"),
        }
    }

    fn attention(&mut self) -> String {
        let causal = self.0.i64(0..=1);
        loop {
            let [batch, heads, queries, keys] = self.sizes([4, 32, 1024, 1024], 1 << 22);
            let keys = if causal == 1 { queries } else { keys };
            let width = [32, 64, 64, 80, 128][self.0.usize(..5)];
            if batch * heads * queries * keys * width <= PRODUCTS / 4 {
                let shape = |count| format!("f32[{batch},{heads},{count},{width}]");
                let (q, kv) = (shape(queries), shape(keys));
                return format!("attention causal={causal} | {q} {kv} {kv}");
            }
        }
    }

    fn elementwise(&mut self) -> String {
        let (shape, _) = self.shape();
        let name = self.of(&["add", "mul", "add_relu", "gelu", "silu", "silu_mul", "sgd", "adam"]);
        let count = match name {
            "gelu" | "silu" => 1,
            "adam" => 4,
            _ => 2,
        };
        let dtype = if name == "adam" { "f32" } else { self.float() };
        format!("{name} |{}", format!(" {dtype}[{shape}]").repeat(count))
    }
}

fn join(sizes: &[i64]) -> String {
    sizes.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}
