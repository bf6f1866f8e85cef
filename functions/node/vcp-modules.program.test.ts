import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { packZip } from "@toolyard/core/zip";
import { verifies } from "../../test/support/verifies.ts";
import type { ModuleDesk } from "./module-desk.ts";
import { VcpModules } from "./vcp-modules.ts";

const code = 'module.exports = { processToolCall: () => "well" };';

test(`a module that could not be opened is opened again after a pause ${verifies("VCP-7")}`, async () => {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-modules-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const states: string[] = [];
  let downloads = 0;
  const desk: ModuleDesk = {
    hold(reports) {
      states.push(...reports.map(({ state }) => state));
      return Promise.resolve({ modules: [{ plugin: "Late", fingerprint: "fp1" }], leaseMs: 60_000 });
    },
    open: (plugin) =>
      Promise.resolve({
        plugin,
        fingerprint: "fp1",
        spec: { name: plugin, script: "index.js", config: {}, environment: {}, hasApiRoutes: false },
        envFiles: [],
        filesUrl: "https://store.example/files",
        filesHash: "abcd1234",
        maxBytes: 10_000,
      }),
    tell: () => undefined,
    async download() {
      downloads += 1;
      if (downloads === 1) throw new Error("the files were answered with 503");
      return packZip([{ path: "index.js", body: Buffer.from(code) }]);
    },
  };
  const log = { log: () => undefined };
  const modules = new VcpModules({ directory, packages: undefined, path: process.env["PATH"] ?? "", log, desk });
  onTestFinished(() => modules.stop());
  await modules.refresh();
  await expect.poll(() => states).toContain("failed");
  await modules.refresh();
  // Not at once: what is wrong may stay so.
  expect(downloads).toBe(1);
  const running = async (): Promise<boolean> => {
    await modules.refresh();
    return states.includes("running");
  };
  await expect.poll(running, { timeout: 20_000, interval: 100 }).toBe(true);
  expect(downloads).toBe(2);
});
