//! Draws products of values that the program has: with a computed second factor, with the value's
//! transpose, or with new data of more axes.

use gradiff_corpus::{DType, Method, Statement, TensorType, ValueId, promote, statement_type};

use crate::programs::Builder;
use crate::{Op, shapes};

/// Maximum number of products.
const PRODUCTS: usize = 1 << 12;

impl Builder<'_> {
    /// Adds a product of two values, the second of which is computed.
    pub(crate) fn product_of_values(&mut self) -> Option<ValueId> {
        let x = self.pick(|tensor, _| !tensor.shape.is_empty())?;
        let TensorType { dtype, shape } = self.type_of(x).clone();
        let terms = *shape.last()?;
        let fits = |number: &usize| {
            let TensorType { dtype: second, shape } = &self.types[*number];
            let inner = shape.get(shape.len().saturating_sub(2));
            let is_number = promote(dtype, *second) != DType::Bool;
            inner == Some(&terms) && is_number && !self.facts[*number].poison
        };
        let found: Vec<usize> = (0..self.types.len()).filter(fits).collect();
        if found.is_empty() {
            return None;
        }
        let number = self.choices.pick(&found);
        let is_data = Op::of(&self.statements[number]).is_none();
        let y = match is_data || self.choices.one_in(3) {
            true => self.reversed(ValueId(number as u32)),
            false => ValueId(number as u32),
        };
        let method = self.product_method([dtype, self.type_of(y).dtype]);
        self.push_product(method, [x, y], terms)
    }

    /// Adds a product of the program again, with its second factor reversed along some axes.
    pub(crate) fn product_of_reversed(&mut self) -> Option<ValueId> {
        let products = self.products();
        if products.is_empty() {
            return None;
        }
        let number = self.choices.pick(&products);
        let Statement::Method { method, mut srcs, args } = self.statements[number].clone() else {
            return None;
        };
        srcs[1] = self.reversed(srcs[1]);
        Some(self.push_method(method, srcs, args, self.facts[number]))
    }

    /// Returns the numbers of the statements that multiply a value by another.
    pub(crate) fn products(&self) -> Vec<usize> {
        let multiplies = |method: &Method| {
            matches!(
                method,
                Method::Matmul
                    | Method::Dot
                    | Method::Linear
                    | Method::Conv2d
                    | Method::ConvTranspose2d
                    | Method::ScaledDotProductAttention
            )
        };
        let is_product = |number: &usize| match &self.statements[*number] {
            Statement::Method { method, .. } => multiplies(method) && !self.facts[*number].poison,
            _ => false,
        };
        (0..self.statements.len()).filter(is_product).collect()
    }

    /// Adds a product of a value and its transpose, in either order.
    pub(crate) fn product_of_transpose(&mut self) -> Option<ValueId> {
        let x = self.pick(|tensor, _| 2 <= tensor.shape.len() && tensor.dtype != DType::Bool)?;
        let TensorType { dtype, shape } = self.type_of(x).clone();
        let (outer, &[rows, columns]) = shape.split_last_chunk::<2>()?;
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        axes.swap(outer.len(), outer.len() + 1);
        let transpose = self.push(Statement::Permute { src: x, axes }, self.fact(x));
        let method = self.product_method([dtype; 2]);
        match self.choices.one_in(2) {
            true => self.push_product(method, [transpose, x], rows),
            false => self.push_product(method, [x, transpose], columns),
        }
    }

    /// Adds a product of a value and new data that have more axes than it, the first of all.
    pub(crate) fn product_of_more_axes(&mut self) -> Option<ValueId> {
        let x = self.pick(|tensor, _| !tensor.shape.is_empty())?;
        let TensorType { dtype, shape } = self.type_of(x).clone();
        let (terms, rows) = shape.split_last()?;
        let outer = &rows[..rows.len().saturating_sub(1)];
        let [count, columns] = [3, 8].map(|limit| 1 + self.choices.below(limit) as usize);
        let factor = [&[count][..], outer, &[*terms, columns]].concat();
        let second = self.factor_dtype_for(dtype)?;
        let is_long = PRODUCTS < count * shapes::count(&shape) * columns;
        if is_long || self.limit < shapes::count(&factor) {
            return None;
        }
        let method = self.product_method([dtype, second]);
        let factor = self.fresh(second, factor);
        self.push_products(method, x, factor, *terms, Vec::new(), false)
    }

    /// Adds the value, reversed along its last axis or some others.
    fn reversed(&mut self, src: ValueId) -> ValueId {
        let rank = self.type_of(src).shape.len();
        let mut axes = shapes::axes(self.choices, rank);
        if axes.is_empty() {
            axes.extend(rank.checked_sub(1));
        }
        self.push(Statement::Flip { src, axes }, self.fact(src))
    }

    /// Draws a matrix product that takes these dtypes.
    fn product_method(&mut self, dtypes: [DType; 2]) -> Method {
        let methods = [Method::Matmul, Method::Dot, Method::Linear];
        let count = if dtypes.into_iter().all(DType::is_float) { 3 } else { 2 };
        self.choices.pick(&methods[..count])
    }

    /// Adds a matrix product, if it is well typed and not too long.
    fn push_product(
        &mut self,
        method: Method,
        srcs: [ValueId; 2],
        terms: usize,
    ) -> Option<ValueId> {
        let [x, y] = srcs;
        let (second, fact) = (self.type_of(y).dtype, self.fact(y));
        let statement = Statement::Method { method, srcs: srcs.to_vec(), args: Vec::new() };
        let result = statement_type(&statement, &self.types).ok()?;
        if PRODUCTS < result.count() * terms.max(1) {
            return None;
        }
        let fact = self.fact_of_products(x, (&fact, second), terms, false)?;
        Some(self.push(statement, fact))
    }
}
