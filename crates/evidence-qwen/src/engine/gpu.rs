//! The decoder's operations on Burn's wgpu backend: WebGPU in a browser,
//! Vulkan, Metal or Direct3D natively.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use burn::backend::wgpu::{
    CubeTensor, MemoryConfiguration, RuntimeOptions, WgpuSetup, try_init_device, wgpu,
};
use burn::backend::{DType, TensorMetadata};
use burn::cubecl;
use burn::cubecl::bytes::Bytes;
use burn::cubecl::client::Client;
use burn::cubecl::ir::{ElemType, UIntKind, metadata::Info};
use burn::cubecl::prelude::{
    AddressType, CubeDim, ExecutionMode, KernelDefinition, KernelId, KernelMetadata,
    KernelSettings, Scope,
};
use burn::cubecl::server::{KernelArguments, MetadataBindingInfo, ServerError};
use burn::cubecl::{CubeCount, CubeKernel, PrecompiledSource};
use burn::tensor::Shape;
use serde::{Deserialize, Serialize};
use web_time::Instant;

use super::wgsl::{
    self, Kernel, MatvecVariant, NO_TOKEN, NOT_A_NUMBER, Product, REDUCTION_THREADS, TileVariant,
};
use super::{Candidate, DeviceError, Engine, HeadNorms, Heads, LayerCache, Matrix, Projection};

/// What an adapter is and what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterInfo {
    /// The adapter's name, as far as the browser or driver tells.
    pub name: String,
    /// The graphics API behind it.
    pub api: String,
    /// Whether it is an adapter that computes on the CPU.
    pub is_software: bool,
    /// Whether kernels may compute in half precision.
    pub has_f16: bool,
    /// Whether the threads of a subgroup can exchange values.
    pub has_subgroups: bool,
    /// The fewest threads of a subgroup.
    pub min_subgroup_size: u32,
    /// Bytes of the largest buffer that a kernel can read.
    pub max_buffer_bytes: u64,
}

/// A GPU, or what stands for one, with Burn's runtime on it.
#[derive(Clone)]
pub struct Gpu {
    client: Client,
    device: cubecl::Device,
    info: AdapterInfo,
    plan: Plan,
    is_tuned: bool,
    fault: Fault,
}

/// The first error that the device reported on its own. What it computes from
/// then on means nothing.
type Fault = Arc<OnceLock<DeviceError>>;

/// Keeps what the device reports. Burn's own handler panics instead.
fn watch(device: &wgpu::Device) -> Fault {
    let fault = Fault::default();
    let reported = Arc::clone(&fault);
    device.on_uncaptured_error(Arc::new(move |error| {
        // The first is the cause of those that follow.
        let _ = reported.set(match error {
            wgpu::Error::OutOfMemory { .. } => DeviceError::OutOfMemory,
            error => DeviceError::Failed(error.to_string()),
        });
    }));
    fault
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Gpu")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl Gpu {
    /// Asks for the most powerful adapter and a device on it.
    ///
    /// # Errors
    ///
    /// When there is no WebGPU, no adapter, or the adapter gives no device.
    pub async fn connect() -> Result<Self, DeviceError> {
        let failed = |error: &dyn std::fmt::Display| DeviceError::NoAdapter(error.to_string());
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapter = instance
            .request_adapter(&wgpu::RequestAdapterOptions {
                power_preference: wgpu::PowerPreference::HighPerformance,
                ..Default::default()
            })
            .await
            .map_err(|error| {
                if cfg!(target_family = "wasm") {
                    // What it lists are the interfaces that no browser has.
                    failed(&"the browser offers none")
                } else {
                    failed(&error)
                }
            })?;
        let wanted = wgpu::Features::SUBGROUP | wgpu::Features::SHADER_F16;
        let features = adapter.features() & wanted;
        let limits = adapter.limits();
        let (device, queue) = adapter
            .request_device(&wgpu::DeviceDescriptor {
                required_features: features,
                required_limits: limits.clone(),
                memory_hints: wgpu::MemoryHints::MemoryUsage,
                ..Default::default()
            })
            .await
            .map_err(|error| failed(&error))?;
        let adapter_info = adapter.get_info();
        let info = AdapterInfo {
            name: adapter_info.name.clone(),
            api: adapter_info.backend.to_string(),
            is_software: adapter_info.device_type == wgpu::DeviceType::Cpu,
            has_f16: features.contains(wgpu::Features::SHADER_F16),
            has_subgroups: features.contains(wgpu::Features::SUBGROUP),
            min_subgroup_size: adapter_info.subgroup_min_size,
            max_buffer_bytes: limits
                .max_storage_buffer_binding_size
                .min(limits.max_buffer_size),
        };
        let options = RuntimeOptions {
            // A buffer that is read and one that is written must not share a
            // page: WebGPU knows whole buffers only.
            memory_config: MemoryConfiguration::ExclusivePages,
            ..RuntimeOptions::try_default().map_err(|error| failed(&error))?
        };
        let backend = adapter_info.backend;
        let setup = WgpuSetup {
            instance,
            adapter,
            device: device.clone(),
            queue,
            backend,
        };
        let burn_device = try_init_device(setup, options).map_err(|error| failed(&error))?;
        let fault = watch(&device);
        let device = cubecl::Device::Wgpu(burn_device);
        let client = device.client();
        let plan = Plan::guess(&info);
        Ok(Self {
            client,
            device,
            info,
            plan,
            is_tuned: false,
            fault,
        })
    }

    /// The adapter.
    pub fn info(&self) -> &AdapterInfo {
        &self.info
    }

    /// The variants in use, to be remembered once a model was loaded.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Takes a plan that was remembered in place of a measurement.
    #[must_use]
    pub fn with_plan(self, plan: Plan) -> Self {
        Self {
            plan,
            is_tuned: true,
            ..self
        }
    }

    fn empty(&self, length: usize, dtype: DType) -> CubeTensor {
        // An empty buffer cannot be bound.
        let handle = self.client.empty(length.max(4) * dtype.size());
        let shape = Shape::new([length]);
        CubeTensor::new_contiguous(
            self.client.clone(),
            self.device.clone(),
            shape,
            handle,
            dtype,
        )
    }

    fn upload<T: bytemuck::Pod + Send + Sync>(&self, values: Vec<T>, dtype: DType) -> CubeTensor {
        let shape = Shape::new([values.len()]);
        // A matrix is large: it is handed over, not copied.
        let handle = self.client.create(Bytes::from_elems(values));
        CubeTensor::new_contiguous(
            self.client.clone(),
            self.device.clone(),
            shape,
            handle,
            dtype,
        )
    }

    /// `params` is what the kernel declares behind its buffers, if it does.
    fn launch(
        &self,
        kernel: Kernel,
        count: (u32, u32),
        buffers: &[&CubeTensor],
        params: Option<[u32; 2]>,
    ) {
        let mut arguments = KernelArguments::new();
        for buffer in buffers {
            arguments = arguments.with_buffer(buffer.handle.clone().binding());
        }
        if let Some([a, b]) = params.map(|params| params.map(u64::from)) {
            arguments = arguments.with_info(MetadataBindingInfo::custom(vec![a | b << 32, 0]));
        }
        let count = CubeCount::Static(count.0, count.1, 1);
        self.client.launch(Box::new(kernel), count, arguments);
    }
}

impl KernelMetadata for Kernel {
    fn id(&self) -> KernelId {
        KernelId::new::<Self>()
            .info(self.clone())
            .mode(ExecutionMode::Unchecked)
    }

    fn address_type(&self) -> ElemType {
        UIntKind::U32.into()
    }
}

impl CubeKernel for Kernel {
    fn define(&self) -> KernelDefinition {
        let (x, y) = self.workgroup();
        let settings = KernelSettings::new(
            CubeDim::new_2d(x, y).0,
            ExecutionMode::Unchecked,
            AddressType::U32,
        );
        KernelDefinition {
            body: Scope::root(settings.clone()),
            settings,
            info: Info::default(),
        }
    }

    fn source(&self) -> Option<PrecompiledSource> {
        Some(PrecompiledSource {
            source: Kernel::source(self),
            entrypoint_name: "main".to_owned(),
            lang: "wgsl",
        })
    }
}

/// Which variants of the products run on an adapter: what is fastest differs
/// by orders of magnitude between a GPU and a CPU that stands for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// For few tokens.
    pub(crate) matvec: MatvecVariant,
    /// For many tokens.
    pub(crate) tile: TileVariant,
}

/// Products with fewer tokens than this read the matrix once a token.
const FEW_TOKENS: usize = 3;

impl Plan {
    /// A guess from what the adapter says about itself.
    pub(crate) fn guess(info: &AdapterInfo) -> Self {
        if info.is_software {
            Self {
                matvec: MatvecVariant {
                    lanes: 1,
                    rows: 2,
                    threads: 32,
                    subgroups: false,
                },
                tile: TileVariant::Registers {
                    rows: 4,
                    tokens: 4,
                    threads: 32,
                },
            }
        } else {
            Self {
                matvec: MatvecVariant {
                    lanes: 16,
                    rows: 2,
                    threads: 128,
                    subgroups: false,
                },
                tile: TileVariant::Shared { side: 4 },
            }
        }
    }

    /// The variants that are worth a measurement on this adapter.
    pub(crate) fn matvec_variants(info: &AdapterInfo) -> Vec<MatvecVariant> {
        let variant = |lanes, rows, threads| MatvecVariant {
            lanes,
            rows,
            threads,
            subgroups: false,
        };
        let mut variants = vec![
            variant(1, 1, 32),
            variant(1, 2, 32),
            variant(1, 4, 32),
            variant(8, 2, 64),
            variant(16, 2, 128),
            variant(32, 1, 128),
            variant(32, 4, 128),
        ];
        if info.has_subgroups {
            let lanes = info.min_subgroup_size.min(32);
            variants.extend([1, 2, 4].map(|rows| MatvecVariant {
                lanes,
                rows,
                threads: 128,
                subgroups: true,
            }));
        }
        variants
    }

    /// The variants that are worth a measurement.
    pub(crate) fn tile_variants() -> Vec<TileVariant> {
        let registers = |rows, tokens| TileVariant::Registers {
            rows,
            tokens,
            threads: 32,
        };
        vec![
            registers(4, 4),
            registers(8, 4),
            registers(4, 8),
            registers(2, 8),
            TileVariant::Shared { side: 2 },
            TileVariant::Shared { side: 4 },
        ]
    }
}

/// How long one variant is measured for, and how often it runs at most.
const MEASUREMENT: Duration = Duration::from_millis(20);
const MAX_RUNS: u32 = 20;

/// Bytes of the smallest matrix that variants are measured with.
const MEASURED_BYTES: u64 = 256 << 10;

/// Tokens that the variants for many are measured with.
const MEASURED_TOKENS: usize = 64;

/// A GPU with the variants that were chosen for it.
#[derive(Debug, Clone)]
pub(crate) struct GpuEngine {
    gpu: Gpu,
}

/// Bytes of a candidate that leaves the device: its token and its logit.
pub(crate) const CANDIDATE_BYTES: u64 = 8;

/// Sizes fit in 32 bits: the config bounds them.
#[expect(
    clippy::cast_possible_truncation,
    reason = "dimensions are below 2^24 and buffers below 2^32"
)]
fn narrow(size: usize) -> u32 {
    size as u32
}

impl GpuEngine {
    pub(crate) fn new(gpu: Gpu) -> Self {
        Self { gpu }
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Chooses the fastest variants for products with this matrix, by a short
    /// measurement. Does nothing when a plan was remembered, or when the matrix
    /// is so small that compiling the variants takes longer than they can save.
    pub(crate) async fn tune(&mut self, matrix: &Matrix<CubeTensor>) -> Result<(), DeviceError> {
        if self.gpu.is_tuned || matrix.byte_count() < MEASURED_BYTES {
            return Ok(());
        }
        let mut best = Best::default();
        for matvec in Plan::matvec_variants(&self.gpu.info) {
            self.gpu.plan.matvec = matvec;
            best.consider(matvec, self.time(matrix, 1).await);
        }
        self.gpu.plan.matvec = best.take()?;
        let mut best = Best::default();
        for tile in Plan::tile_variants() {
            self.gpu.plan.tile = tile;
            best.consider(tile, self.time(matrix, MEASURED_TOKENS).await);
        }
        self.gpu.plan.tile = best.take()?;
        self.gpu.is_tuned = true;
        Ok(())
    }

    /// Seconds that one product takes.
    async fn time(&self, matrix: &Matrix<CubeTensor>, tokens: usize) -> Result<f64, DeviceError> {
        let x = self.floats(vec![1.0; tokens * matrix.cols]);
        let projection = Projection {
            parts: std::slice::from_ref(matrix),
            bias: None,
        };
        // The first run compiles. A kernel that the adapter refuses takes no
        // time at all; only reading its result tells.
        let product = self.project(&x, tokens, &projection);
        self.read(&product).await?;
        let start = Instant::now();
        let mut runs = 0;
        while runs < MAX_RUNS && start.elapsed() < MEASUREMENT {
            self.project(&x, tokens, &projection);
            self.finish().await?;
            runs += 1;
        }
        Ok(start.elapsed().as_secs_f64() / f64::from(runs))
    }

    fn multiply(
        &self,
        x: &CubeTensor,
        tokens: usize,
        projection: &Projection<'_, Self>,
        out: &CubeTensor,
        add: bool,
    ) {
        let stride = projection.rows();
        let mut offset = 0;
        for matrix in projection.parts {
            let product = Product {
                format: matrix.format,
                rows: narrow(matrix.rows),
                cols: narrow(matrix.cols),
                stride: narrow(stride),
                offset: narrow(offset),
                bias: projection.bias.is_some(),
                add,
            };
            let mut buffers = vec![x, &matrix.words];
            buffers.extend(&matrix.groups);
            buffers.extend(projection.bias);
            buffers.push(out);
            self.launch_product(product, tokens, &buffers);
            offset += matrix.rows;
        }
    }

    fn launch_product(&self, product: Product, tokens: usize, buffers: &[&CubeTensor]) {
        let tokens = narrow(tokens);
        let (kernel, count, params) = if (tokens as usize) < FEW_TOKENS {
            let variant = self.gpu.plan.matvec;
            let rows_per_group = variant.threads / variant.lanes * variant.rows;
            let count = (product.rows.div_ceil(rows_per_group), tokens);
            (Kernel::Matvec { product, variant }, count, None)
        } else {
            let variant = self.gpu.plan.tile;
            let count = match variant {
                TileVariant::Registers {
                    rows,
                    tokens: tile,
                    threads,
                } => (product.rows.div_ceil(rows * threads), tokens.div_ceil(tile)),
                TileVariant::Shared { side } => {
                    (product.rows.div_ceil(16 * side), tokens.div_ceil(16 * side))
                }
            };
            (Kernel::Tile { product, variant }, count, Some([tokens, 0]))
        };
        self.gpu.launch(kernel, count, buffers, params);
    }
}

/// The fastest variant so far, or why the last one did not run.
struct Best<T> {
    fastest: Option<(T, f64)>,
    error: Option<DeviceError>,
}

impl<T> Default for Best<T> {
    fn default() -> Self {
        Self {
            fastest: None,
            error: None,
        }
    }
}

impl<T> Best<T> {
    fn consider(&mut self, variant: T, seconds: Result<f64, DeviceError>) {
        match seconds {
            Ok(seconds) if self.fastest.as_ref().is_none_or(|best| seconds < best.1) => {
                self.fastest = Some((variant, seconds));
            }
            Ok(_) => {}
            Err(error) => self.error = Some(error),
        }
    }

    /// An error only when no variant ran.
    fn take(self) -> Result<T, DeviceError> {
        let none = || DeviceError::Failed("no kernel was measured".to_owned());
        match self.fastest {
            Some((variant, _)) => Ok(variant),
            None => Err(self.error.unwrap_or_else(none)),
        }
    }
}

impl Engine for GpuEngine {
    type Floats = CubeTensor;
    type Words = CubeTensor;

    fn floats(&self, values: Vec<f32>) -> CubeTensor {
        self.gpu.upload(values, DType::F32)
    }

    fn words(&self, values: Vec<u32>) -> CubeTensor {
        self.gpu.upload(values, DType::U32)
    }

    fn zeros(&self, length: usize) -> CubeTensor {
        // WebGPU clears a buffer before its first use; nobody reads before
        // writing, so a buffer of the pool will do as well.
        self.gpu.empty(length, DType::F32)
    }

    fn max_buffer_bytes(&self) -> Option<u64> {
        Some(self.gpu.info.max_buffer_bytes)
    }

    fn grown(&self, floats: &CubeTensor, length: usize) -> CubeTensor {
        let grown = self.gpu.empty(length, DType::F32);
        let vectors = narrow(floats.shape().num_elements() / 4);
        if vectors > 0 {
            let count = (vectors.div_ceil(REDUCTION_THREADS).min(1024), 1);
            self.gpu
                .launch(Kernel::Copy, count, &[floats, &grown], Some([vectors, 0]));
        }
        grown
    }

    fn embed(&self, table: &Matrix<CubeTensor>, tokens: &[u32]) -> CubeTensor {
        let out = self.gpu.empty(tokens.len() * table.cols, DType::F32);
        let ids = self.gpu.upload(tokens.to_vec(), DType::U32);
        let mut buffers = vec![&ids, &table.words];
        buffers.extend(&table.groups);
        buffers.push(&out);
        let cols = narrow(table.cols);
        let kernel = Kernel::Embed {
            format: table.format,
            cols,
        };
        let blocks = cols / wgsl::block_cols(table.format);
        let count = (blocks.div_ceil(REDUCTION_THREADS), narrow(tokens.len()));
        self.gpu.launch(kernel, count, &buffers, None);
        out
    }

    fn rms_norm(
        &self,
        x: &CubeTensor,
        rows: Range<usize>,
        weight: &CubeTensor,
        width: usize,
        eps: f32,
    ) -> CubeTensor {
        let out = self.gpu.empty(rows.len() * width, DType::F32);
        let kernel = Kernel::RmsNorm {
            width: narrow(width),
            eps_bits: eps.to_bits(),
        };
        let params = Some([narrow(rows.start), 0]);
        self.gpu
            .launch(kernel, (narrow(rows.len()), 1), &[x, weight, &out], params);
        out
    }

    fn project(
        &self,
        x: &CubeTensor,
        tokens: usize,
        projection: &Projection<'_, Self>,
    ) -> CubeTensor {
        let out = self.gpu.empty(tokens * projection.rows(), DType::F32);
        self.multiply(x, tokens, projection, &out, false);
        out
    }

    fn project_onto(
        &self,
        x: &CubeTensor,
        tokens: usize,
        projection: &Projection<'_, Self>,
        residual: &mut CubeTensor,
    ) {
        self.multiply(x, tokens, projection, residual, true);
    }

    fn rotate(
        &self,
        fused: &mut CubeTensor,
        tokens: usize,
        position: usize,
        heads: Heads,
        norms: Option<&HeadNorms<CubeTensor>>,
        rotations: &CubeTensor,
        cache: &mut LayerCache<CubeTensor>,
    ) {
        let kernel = Kernel::Rotate {
            heads,
            norm_eps_bits: norms.map(|norms| norms.eps.to_bits()),
        };
        let mut buffers = vec![&*fused, rotations, &cache.keys, &cache.values];
        if let Some(norms) = norms {
            buffers.extend([&norms.query, &norms.key]);
        }
        let count = (narrow(heads.query + 2 * heads.key_value), narrow(tokens));
        self.gpu
            .launch(kernel, count, &buffers, Some([0, narrow(position)]));
    }

    fn attend(
        &self,
        fused: &CubeTensor,
        tokens: usize,
        position: usize,
        heads: Heads,
        cache: &LayerCache<CubeTensor>,
    ) -> CubeTensor {
        let out = self.gpu.empty(tokens * heads.query_size(), DType::F32);
        let count = (narrow(heads.query), narrow(tokens));
        let buffers = [fused, &cache.keys, &cache.values, &out];
        self.gpu.launch(
            Kernel::Attend { heads },
            count,
            &buffers,
            Some([0, narrow(position)]),
        );
        out
    }

    fn gate(&self, gate_up: &CubeTensor, tokens: usize, width: usize) -> CubeTensor {
        let out = self.gpu.empty(tokens * width, DType::F32);
        let count = (
            narrow(width / 4).div_ceil(REDUCTION_THREADS),
            narrow(tokens),
        );
        self.gpu.launch(
            Kernel::Gate {
                width: narrow(width),
            },
            count,
            &[gate_up, &out],
            None,
        );
        out
    }

    fn penalize(&self, logits: &mut CubeTensor, tokens: &[u32], penalty: f32) {
        if tokens.is_empty() {
            return;
        }
        let ids = self.gpu.upload(tokens.to_vec(), DType::U32);
        let count = (narrow(tokens.len()).div_ceil(REDUCTION_THREADS), 1);
        let params = Some([narrow(tokens.len()), penalty.to_bits()]);
        self.gpu
            .launch(Kernel::Penalize, count, &[&ids, logits], params);
    }

    async fn candidates(
        &self,
        logits: &CubeTensor,
        length: usize,
        count: usize,
        allowed: Option<&[u32]>,
    ) -> Result<Vec<Candidate>, DeviceError> {
        let (length, count) = (narrow(length), narrow(count));
        let slice = 2048;
        let slices = length.div_ceil(slice);
        let lists = self.gpu.empty((2 * slices * count) as usize, DType::U32);
        let best = self.gpu.empty(2 * count as usize, DType::U32);
        let mask = allowed.map(|allowed| self.gpu.upload(allowed.to_vec(), DType::U32));
        let mut buffers = vec![logits];
        buffers.extend(&mask);
        buffers.push(&lists);
        let kernel = Kernel::TopOfSlice {
            count,
            slice,
            masked: mask.is_some(),
        };
        self.gpu
            .launch(kernel, (slices, 1), &buffers, Some([length, 0]));
        let kernel = Kernel::TopOfSlices { count, slices };
        self.gpu.launch(kernel, (1, 1), &[&lists, &best], None);
        let bytes = self.gpu.read(&best).await?;
        let mut candidates = Vec::with_capacity(count as usize);
        for entry in bytes.chunks_exact(8) {
            let [token, bits] = bytemuck::pod_read_unaligned(entry);
            match token {
                NOT_A_NUMBER => return Err(DeviceError::NotANumber),
                NO_TOKEN => break,
                token => candidates.push(Candidate {
                    token,
                    logit: f32::from_bits(bits),
                }),
            }
        }
        Ok(candidates)
    }

    async fn read(&self, floats: &CubeTensor) -> Result<Vec<f32>, DeviceError> {
        let bytes = self.gpu.read(floats).await?;
        Ok(bytes
            .chunks_exact(4)
            .map(bytemuck::pod_read_unaligned)
            .collect())
    }

    async fn finish(&self) -> Result<(), DeviceError> {
        let finished = self.gpu.client.sync().await;
        self.gpu.checked(finished)
    }
}

impl Gpu {
    /// What Burn says, unless the device said something before.
    fn checked<T>(&self, result: Result<T, ServerError>) -> Result<T, DeviceError> {
        if let Some(fault) = self.fault.get() {
            return Err(fault.clone());
        }
        result.map_err(|error| {
            if error.is_device_poisoned() {
                DeviceError::Lost
            } else {
                DeviceError::Failed(error.to_string())
            }
        })
    }

    /// The only way back from the device.
    async fn read(&self, tensor: &CubeTensor) -> Result<Vec<u8>, DeviceError> {
        let byte_count = tensor.shape().num_elements() * tensor.dtype.size();
        let read = self.client.read_async(vec![tensor.handle.clone()]).await;
        let mut buffers = self.checked(read)?;
        let mut bytes = buffers
            .pop()
            .map(|bytes| bytes.to_vec())
            .unwrap_or_default();
        // A buffer may be longer than what it holds.
        bytes.truncate(byte_count);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::flex::FlexEngine;
    use crate::matrix::{Format, GroupFloat, HostMatrix};
    use crate::sampling::Random;
    use pollster::block_on;

    fn gpu() -> Option<Gpu> {
        block_on(Gpu::connect())
            .inspect_err(|error| println!("{error}"))
            .ok()
    }

    fn floats(random: &mut Random, length: usize) -> Vec<f32> {
        #[expect(clippy::cast_possible_truncation, reason = "test values")]
        (0..length)
            .map(|_| (random.unit() * 2.0 - 1.0) as f32)
            .collect()
    }

    /// A matrix of random bits that are numbers in every format.
    fn matrix(random: &mut Random, rows: usize, cols: usize, format: Format) -> HostMatrix {
        let count = rows * format.row_words(cols);
        let group_count = rows * format.row_group_words(cols);
        let half = |random: &mut Random, is_bf16: bool| {
            let value = floats(random, 1)[0];
            if is_bf16 {
                half::bf16::from_f32(value).to_bits()
            } else {
                half::f16::from_f32(value).to_bits()
            }
        };
        let pair = |random: &mut Random, is_bf16| {
            u32::from(half(random, is_bf16)) | u32::from(half(random, is_bf16)) << 16
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "random bits"
        )]
        let words = (0..count)
            .map(|_| match format {
                Format::F32 => floats(random, 1)[0].to_bits(),
                Format::F16 => pair(random, false),
                Format::Bf16 => pair(random, true),
                Format::Packed { .. } => (random.unit() * 4_294_967_296.0) as u32,
            })
            .collect();
        let groups = (0..group_count)
            .map(|_| match format {
                Format::Packed {
                    groups: GroupFloat::F32,
                    ..
                } => floats(random, 1)[0].to_bits(),
                Format::Packed {
                    groups: GroupFloat::F16,
                    ..
                } => pair(random, false),
                _ => pair(random, true),
            })
            .collect();
        HostMatrix {
            rows,
            cols,
            format,
            words,
            groups,
        }
    }

    fn formats() -> Vec<(Format, usize)> {
        let packed = |bits, group_size, groups| Format::Packed {
            bits,
            group_size,
            groups,
        };
        vec![
            (Format::F32, 100),
            (Format::F16, 100),
            (Format::Bf16, 36),
            (packed(4, 32, GroupFloat::F16), 96),
            (packed(4, 64, GroupFloat::Bf16), 192),
            (packed(4, 128, GroupFloat::F32), 256),
            (packed(8, 32, GroupFloat::F32), 96),
            (packed(8, 64, GroupFloat::F16), 128),
            (packed(8, 128, GroupFloat::Bf16), 128),
        ]
    }

    fn relative_difference(a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len());
        let norm =
            |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>().sqrt();
        norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
    }

    /// The product of two matrices side by side with a bias, added to a residual.
    fn product<E: Engine>(
        engine: &E,
        x: &[f32],
        tokens: usize,
        matrices: &[HostMatrix],
        bias: &[f32],
        residual: &[f32],
    ) -> [Vec<f32>; 2] {
        let parts: Vec<_> = matrices
            .iter()
            .map(|matrix| engine.upload(matrix.clone()))
            .collect();
        let (x, bias) = (engine.floats(x.to_vec()), engine.floats(bias.to_vec()));
        let plain = Projection {
            parts: &parts,
            bias: None,
        };
        let biased = Projection {
            parts: &parts,
            bias: Some(&bias),
        };
        let mut sum = engine.floats(residual.to_vec());
        engine.project_onto(&x, tokens, &biased, &mut sum);
        let product = engine.project(&x, tokens, &plain);
        [
            block_on(engine.read(&product)).unwrap(),
            block_on(engine.read(&sum)).unwrap(),
        ]
    }

    #[test]
    fn every_variant_of_the_products_agrees_with_the_cpu() {
        let Some(gpu) = gpu() else { return };
        let matvecs = Plan::matvec_variants(gpu.info());
        let tiles = Plan::tile_variants();
        let mut random = Random::new(5);
        for (format, cols) in formats() {
            // Row counts that fill no workgroup.
            let matrices = [
                matrix(&mut random, 37, cols, format),
                matrix(&mut random, 6, cols, format),
            ];
            for tokens in [1, 2, 3, 21] {
                let x = floats(&mut random, tokens * cols);
                let bias = floats(&mut random, 43);
                let residual = floats(&mut random, tokens * 43);
                let expected = product(&FlexEngine, &x, tokens, &matrices, &bias, &residual);
                // A software adapter compiles for minutes: every variant with one
                // float and one packed format, one variant with the others.
                let plans = match format {
                    Format::F16
                    | Format::Packed {
                        bits: 4,
                        group_size: 64,
                        ..
                    } => {
                        if tokens < FEW_TOKENS {
                            matvecs.len()
                        } else {
                            tiles.len()
                        }
                    }
                    _ => 1,
                };
                for index in 0..plans {
                    let mut gpu = gpu.clone();
                    gpu.plan = Plan {
                        matvec: matvecs[index.min(matvecs.len() - 1)],
                        tile: tiles[index.min(tiles.len() - 1)],
                    };
                    let plan = gpu.plan;
                    let engine = GpuEngine::new(gpu);
                    let actual = product(&engine, &x, tokens, &matrices, &bias, &residual);
                    for (actual, expected) in actual.iter().zip(&expected) {
                        let difference = relative_difference(actual, expected);
                        assert!(
                            difference < 1e-5,
                            "{format:?} {tokens} {plan:?}: {difference}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn embeddings_are_unpacked_as_on_the_cpu() {
        let Some(gpu) = gpu() else { return };
        let engine = GpuEngine::new(gpu);
        let mut random = Random::new(6);
        for (format, cols) in formats() {
            let table = matrix(&mut random, 50, cols, format);
            let tokens = [49, 0, 7, 7];
            let expected = FlexEngine.embed(&FlexEngine.upload(table.clone()), &tokens);
            let expected = block_on(FlexEngine.read(&expected)).unwrap();
            let actual = engine.embed(&engine.upload(table), &tokens);
            let actual = block_on(engine.read(&actual)).unwrap();
            assert!(relative_difference(&actual, &expected) < 1e-6, "{format:?}");
        }
    }

    #[test]
    fn candidates_are_those_of_the_cpu() {
        let Some(gpu) = gpu() else { return };
        let engine = GpuEngine::new(gpu);
        let mut random = Random::new(7);
        for length in [5, 2048, 5000] {
            let mut values = floats(&mut random, length);
            // Equal values: the first counts.
            values[3] = 2.0;
            values[length - 1] = 2.0;
            let mask: Vec<u32> = (0..length.div_ceil(32)).map(|_| 0xaaaa_aaab).collect();
            for (count, allowed) in [
                (1, None),
                (4, None),
                (1, Some(&mask[..])),
                (40, Some(&mask[..])),
            ] {
                let expected = block_on(FlexEngine.candidates(
                    &FlexEngine.floats(values.clone()),
                    length,
                    count,
                    allowed,
                ));
                let logits = engine.floats(values.clone());
                let actual = block_on(engine.candidates(&logits, length, count, allowed));
                assert_eq!(actual, expected, "{length} {count} {}", allowed.is_some());
            }
            let mut logits = engine.floats(values.clone());
            engine.penalize(&mut logits, &[3, 4], 2.0);
            let penalized = block_on(engine.read(&logits)).unwrap();
            assert!((penalized[3] - 1.0).abs() < 1e-6);
            values[1] = f32::NAN;
            let logits = engine.floats(values);
            let damaged = block_on(engine.candidates(&logits, length, 1, None));
            assert_eq!(damaged, Err(DeviceError::NotANumber));
        }
    }
}
