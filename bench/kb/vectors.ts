/**
 * What a search by vectors takes in a base of 10,000 chunks, in pairs with the same scan in bare SQL through SQLite's
 * usual cache: what else the machine does is in both, so that the ratio holds where milliseconds do not.
 */
import { DatabaseSync } from "node:sqlite";
import { defineVectorFunctions } from "@toolyard/db/vectors";
import type { Finding } from "../support/report.ts";
import { quantile } from "../support/statistics.ts";
import { byVector, byWords, openBase, type Chunk } from "./base.ts";
import { readPassages } from "./corpus.ts";
import { hashedDimensions } from "./embedder.ts";

const count = 10_000;
const rounds = 60;
const mostMs = 60;

/** Directions in all of space: what they are like changes nothing of what it takes. */
function randomVector(seed: number): Float32Array {
  let state = seed + 1;
  return Float32Array.from({ length: hashedDimensions }, () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return state / 0x40000000 - 1;
  });
}

function* chunks(): Generator<Chunk> {
  const passages = readPassages();
  for (let at = 0; at < count; at += 1) {
    const { text = "" } = passages[at % passages.length] ?? {};
    yield { id: String(at), text, vector: randomVector(at) };
  }
}

export async function measureVectors(): Promise<readonly Finding[]> {
  const base = await openBase(chunks());
  const bare = new DatabaseSync(base.path, { readOnly: true });
  defineVectorFunctions(bare);
  const scan = bare.prepare(`SELECT id, vector_distance_cos(embedding, vector32(?)) AS distance FROM knowledge_chunks
    WHERE embedding IS NOT NULL ORDER BY distance LIMIT 40`);
  const [vectorMs, hybridMs, bareMs]: [number[], number[], number[]] = [[], [], []];
  const busyMs: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const vector = randomVector(1_000_000 + round);
    const before = performance.eventLoopUtilization();
    vectorMs.push(await timed(() => base.search([byVector(vector)])));
    busyMs.push(performance.eventLoopUtilization(before).active);
    hybridMs.push(await timed(() => base.search([byVector(vector), byWords("How deep is the water at the dam?")])));
    bareMs.push(await timed(() => Promise.resolve(scan.all(new Uint8Array(vector.buffer)))));
  }
  bare.close();
  await base.close();
  const figures = (values: readonly number[]): string =>
    `p10 ${quantile(values, 0.1).toFixed(1)}, p50 ${quantile(values, 0.5).toFixed(1)}, p95 ${quantile(values, 0.95).toFixed(1)} ms; 10,000 chunks × 512`;
  const p50 = quantile(vectorMs, 0.5);
  const ratios = vectorMs.map((value, round) => value / (bareMs[round] ?? Number.NaN));
  return [
    { what: "vector search", figures: figures(vectorMs), value: p50, floor: { at: "most", value: mostMs, unit: "ms" } },
    {
      what: "vector search to bare SQL",
      figures: `p10 ${quantile(ratios, 0.1).toFixed(2)} of the pairs; bare scan ${figures(bareMs)}`,
      value: quantile(ratios, 0.5),
      floor: { at: "most", value: 1, unit: "times" },
    },
    {
      what: "hybrid search",
      figures: figures(hybridMs),
      value: quantile(hybridMs, 0.5),
      floor: { at: "most", unit: "ms" },
    },
    {
      what: "event loop busy meanwhile",
      figures: `p95 ${quantile(busyMs, 0.95).toFixed(1)} ms; vector search`,
      value: quantile(busyMs, 0.5),
      floor: { at: "most", unit: "ms" },
    },
  ];
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}
