//! Experiments on models, for learning and for deciding.
//!
//! [`attention`] measures where attention goes. [`int4`] is group-wise quantization to four bits as it is taught and
//! [`theory`] what it should cost; [`variant`] makes models with other weights, [`compare`] says how their answers
//! differ, and [`dither`] makes an original out of a quantized file.

pub mod attention;
pub mod compare;
pub mod dither;
pub mod int4;
pub mod theory;
pub mod variant;

/// `‖b - a‖ / ‖a‖` in the Euclidean (for matrices: Frobenius) norm; 0 if both are zero.
pub fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    let (mut error, mut size) = (0.0, 0.0);
    for (&a, &b) in a.iter().zip(b) {
        let (a, b) = (f64::from(a), f64::from(b));
        error += (b - a) * (b - a);
        size += a * a;
    }
    if error == 0.0 { 0.0 } else { (error / size).sqrt() }
}
