import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { CoreDeps } from "../core-deps.ts";
import { firstEffect, rehearsing } from "./rehearse.ts";

function createCore(): { readonly core: CoreDeps; readonly asked: string[] } {
  const asked: string[] = [];
  const part = (called: string): unknown =>
    new Proxy(
      {},
      {
        get:
          (_all, name) =>
          async (...given: readonly unknown[]) => {
            asked.push(`${called}.${String(name)} ${given.join(" ")}`);
            return { data: [], hasMore: false };
          },
      },
    );
  const core = { repos: { flows: part("flows") }, blobs: part("blobs"), queue: part("queue") };
  return { core: core as unknown as CoreDeps, asked };
}

test(`a rehearsal reads what it has read once no more, and ends with the first effect ${verifies("CFG-1", "CFG-4")}`, async () => {
  const { core, asked } = createCore();
  const { repos, blobs } = rehearsing(core);
  for (let at = 0; at < 300; at += 1) {
    await Promise.all([repos.flows.references("ten_a"), repos.flows.references("ten_b")]);
    const effect = await firstEffect(async () => {
      await repos.flows.references("ten_a");
      await repos.flows.delete("ten_a", `flow_${at}`);
    });
    expect(effect).toEqual({ name: "flows.delete", given: ["ten_a", `flow_${at}`] });
  }
  expect(asked).toEqual(["flows.references ten_a", "flows.references ten_b"]);
  // A blob is a stream, which is read once.
  await Promise.all([blobs.get("a"), blobs.get("a")]);
  expect(asked.slice(2)).toEqual(["blobs.get a", "blobs.get a"]);
});

test(`each rehearsal reads anew ${verifies("CFG-3")}`, async () => {
  const { core, asked } = createCore();
  await rehearsing(core).repos.flows.references("ten_a");
  await rehearsing(core).repos.flows.references("ten_a");
  expect(asked).toHaveLength(2);
});
