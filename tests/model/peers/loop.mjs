// The least that a product of 4-bit weights with one token's activations can be: one thread a row, which only
// unpacks and multiplies. There are no scales, and no reduction over threads.

/** Weights are taken from this many bytes, so that a cache does not hold them. */
const WORKING_SET = 64 << 20;

function source(rows, cols, threads) {
  const halves = ["x", "y", "z", "w"].flatMap((element) => [`words.${element}`, `(words.${element} >> 16u)`]);
  const lines = halves.map(
    (half, index) =>
      `sum += vec4<f32>((vec4<u32>(${half}) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u)) * x[8u * i + ${index}u];`,
  );
  return `
@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(${threads})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= ${rows}u) { return; }
  var sum = vec4<f32>();
  for (var i = 0u; i < ${cols / 32}u; i++) {
    let words = w[id.x * ${cols / 32}u + i];
    ${lines.join("\n    ")}
  }
  y[id.x] = sum.x + sum.y + sum.z + sum.w;
}`;
}

/** Milliseconds of one product, with the width of a workgroup that is the fastest. */
export async function measure({ rows, cols }) {
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  const { maxStorageBufferBindingSize, maxBufferSize } = adapter.limits;
  const device = await adapter.requestDevice({ requiredLimits: { maxStorageBufferBindingSize, maxBufferSize } });
  const buffer = (size) => device.createBuffer({ size, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST });
  const size = (rows * cols) / 2;
  const words = new Uint32Array(size / 4).map((_, index) => Math.imul(index + 1, 2_654_435_761));
  const weights = Array.from({ length: Math.max(1, Math.ceil(WORKING_SET / size)) }, () => {
    const weight = buffer(size);
    device.queue.writeBuffer(weight, 0, words);
    return weight;
  });
  const [x, y] = [buffer(4 * cols), buffer(4 * rows)];
  device.queue.writeBuffer(x, 0, new Float32Array(cols).fill(1));
  let best = Infinity;
  for (const threads of [32, 64, 128]) {
    const module = device.createShaderModule({ code: source(rows, cols, threads) });
    const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module } });
    const groups = weights.map((weight) =>
      device.createBindGroup({
        layout: pipeline.getBindGroupLayout(0),
        entries: [weight, x, y].map((buffer, binding) => ({ binding, resource: { buffer } })),
      }),
    );
    const pass = async () => {
      const encoder = device.createCommandEncoder();
      for (const group of groups) {
        const compute = encoder.beginComputePass();
        compute.setPipeline(pipeline);
        compute.setBindGroup(0, group);
        compute.dispatchWorkgroups(Math.ceil(rows / threads));
        compute.end();
      }
      device.queue.submit([encoder.finish()]);
      await device.queue.onSubmittedWorkDone();
    };
    best = Math.min(best, (await window.timed(pass)) / groups.length);
  }
  device.destroy();
  return best;
}
