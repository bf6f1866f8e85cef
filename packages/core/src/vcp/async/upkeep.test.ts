import { createMemoryBlobStore } from "@toolyard/platform/memory/memory-blob-store";
import { expect, test } from "vitest";
import { createFakeCore } from "../../../../../test/support/fake-core.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { TaskName, VcpTask } from "../../ports/vcp-callbacks.ts";
import { expireCallbacks } from "./upkeep.ts";

test(`results past their time go with what said whose they were, and no others ${verifies("VCP-11")}`, async () => {
  const blobs = createMemoryBlobStore();
  for (const id of ["old", "new"]) await blobs.put(`ten_a/VCPAsyncResults/Video-${id}.json`, Buffer.from("{}"));
  const { repos, ...core } = createFakeCore({ core: { blobs } });
  const owner = { callId: "call_1", attempt: 1, callerId: "key_a", userId: null, sessionId: null };
  const task: VcpTask = { plugin: "Video", taskId: "old", ...owner, done: true };
  const removed: TaskName[] = [];
  const vcpCallbacks = {
    ...repos.vcpCallbacks,
    takeExpired: () => Promise.resolve([{ tenant: "ten_a", task }]),
    remove: (_tenant: string, name: TaskName) => Promise.resolve(void removed.push(name)),
  };
  await expireCallbacks({ ...core, repos: { ...repos, vcpCallbacks } }, 10);
  expect(removed).toEqual([task]);
  const left = await blobs.list("ten_a/");
  expect(left.map(({ key }) => key)).toEqual(["ten_a/VCPAsyncResults/Video-new.json"]);
});
