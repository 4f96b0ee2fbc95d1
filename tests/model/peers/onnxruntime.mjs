// onnxruntime-web's product of 4-bit weights, MatMulNBits, on WebGPU.

import * as ort from "./node_modules/onnxruntime-web/dist/ort.webgpu.min.mjs";

ort.env.wasm.numThreads = 1;

/** As many weights share a scale as in MLX's checkpoints. */
const BLOCK_SIZE = 64;

/** Runs between two waits for the device, where one is short. */
const RUNS = 4;

// Just enough of protobuf's encoding to write a model of one node: numbers of fields and their values.
const varint = (value) => {
  const bytes = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...bytes, rest];
    bytes.push((rest % 128) | 128);
  }
};
const number = (field, value) => [Uint8Array.from([...varint(8 * field), ...varint(value)])];
const bytes = (field, parts) => {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  return [Uint8Array.from([...varint(8 * field + 2), ...varint(length)]), ...parts];
};
const text = (field, value) => bytes(field, [new TextEncoder().encode(value)]);

const FLOAT = 1;
const UINT8 = 2;

const initializer = (name, type, dimensions, data) =>
  bytes(5, [
    ...dimensions.flatMap((dimension) => number(1, dimension)),
    ...number(2, type),
    ...text(8, name),
    ...bytes(9, [data]),
  ]);

const floats = (name, field, dimensions) =>
  bytes(field, [
    ...text(1, name),
    ...bytes(
      2,
      bytes(1, [...number(1, FLOAT), ...bytes(2, dimensions.flatMap((dimension) => bytes(1, number(1, dimension))))]),
    ),
  ]);

function model(rows, cols, tokens) {
  const blocks = cols / BLOCK_SIZE;
  const weights = new Uint8Array((rows * cols) / 2).map((_, index) => Math.imul(index + 1, 2_654_435_761) >>> 24);
  const scales = new Uint8Array(new Float32Array(rows * blocks).fill(0.01).buffer);
  const attribute = ([name, value]) => bytes(5, [...text(1, name), ...number(3, value), ...number(20, 2)]);
  const attributes = { K: cols, N: rows, bits: 4, block_size: BLOCK_SIZE };
  const node = bytes(1, [
    ...["x", "w", "scales"].flatMap((name) => text(1, name)),
    ...text(2, "y"),
    ...text(4, "MatMulNBits"),
    ...Object.entries(attributes).flatMap(attribute),
    ...text(7, "com.microsoft"),
  ]);
  const graph = bytes(7, [
    ...node,
    ...text(2, "product"),
    ...initializer("w", UINT8, [rows, blocks, BLOCK_SIZE / 2], weights),
    ...initializer("scales", FLOAT, [rows * blocks], scales),
    ...floats("x", 11, [tokens, cols]),
    ...floats("y", 12, [tokens, rows]),
  ]);
  const opset = (domain, version) => bytes(8, [...text(1, domain), ...number(2, version)]);
  return new Blob([...number(1, 8), ...graph, ...opset("", 17), ...opset("com.microsoft", 1)]).arrayBuffer();
}

/** Milliseconds of one product. */
export async function measure({ rows, cols, tokens }) {
  const options = { executionProviders: ["webgpu"], preferredOutputLocation: "gpu-buffer" };
  const session = await ort.InferenceSession.create(await model(rows, cols, tokens), options);
  const device = await ort.env.webgpu.device;
  const size = 4 * tokens * cols;
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
  const buffer = device.createBuffer({ size, usage });
  device.queue.writeBuffer(buffer, 0, new Float32Array(tokens * cols).fill(1));
  const x = ort.Tensor.fromGpuBuffer(buffer, { dataType: "float32", dims: [tokens, cols] });
  const runs = tokens === 1 ? RUNS : 1;
  const pass = async () => {
    for (let run = 0; run < runs; run++) {
      const { y } = await session.run({ x });
      y.dispose();
    }
    await device.queue.onSubmittedWorkDone();
  };
  const ms = (await window.timed(pass)) / runs;
  await session.release();
  buffer.destroy();
  return ms;
}
