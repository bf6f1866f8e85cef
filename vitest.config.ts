import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

const sources = ["packages/**/src", "functions"];
/** Not among the quick ones: what starts programs, and what takes as much work as a bound lets it. */
const slow = ["**/*.program.test.ts", "**/*.bounds.test.ts"];

/**
 * unit: beside the source; contract: ports and wire fixtures, and what is slow beside it; e2e: whole gateway over sockets; kill: process kills; aws: the built functions under Lambda's runtime client.
 * Files of the first three share their workers' modules (`isolate: false`): reading the whole gateway anew for each
 * would be a third of the work.
 */
export default defineConfig({
  test: {
    // Node reads the sources as it does outside of tests: a third faster than through Vite's transformation.
    experimental: { viteModuleRunner: false },
    // Most suites wait more than they compute.
    maxWorkers: availableParallelism() + 2,
    projects: [
      {
        // A busy machine is no fault.
        test: {
          name: "unit",
          setupFiles: ["test/support/property-runs.ts"],
          include: sources.map((directory) => `${directory}/**/*.test.ts`),
          exclude: ["**/node_modules/**", ...slow],
          isolate: false,
          testTimeout: 30_000,
        },
      },
      {
        test: {
          name: "contract",
          include: [
            "test/contract/**/*.test.ts",
            ...sources.flatMap((directory) => slow.map((each) => `${directory}/${each}`)),
          ],
          isolate: false,
          testTimeout: 30_000,
        },
      },
      {
        test: {
          name: "e2e",
          include: ["test/e2e/**/*.test.ts"],
          isolate: false,
          globalSetup: ["test/support/build-programs.ts"],
          testTimeout: 60_000,
          // Brokers take a minute where cores are few.
          hookTimeout: 180_000,
          // A busy machine is no fault; where a time is part of what is proved, the test says it.
          expect: { poll: { timeout: 10_000 } },
        },
      },
      {
        // One file at a time: each keeps all cores busy with processes of its own.
        test: {
          name: "kill",
          include: ["test/kill/**/*.test.ts"],
          globalSetup: ["test/kill/setup.ts"],
          fileParallelism: false,
          testTimeout: 600_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: "aws",
          include: ["test/aws/**/*.test.ts"],
          globalSetup: ["test/support/build-programs.ts", "test/aws/setup.ts"],
          // They wait for a database 20 ms away more than they compute; each has processes of its own.
          maxWorkers: 2,
          testTimeout: 120_000,
          hookTimeout: 60_000,
          expect: { poll: { timeout: 15_000 } },
        },
      },
      {
        // The official suite of MCP: some minutes of small programs.
        test: {
          name: "conformance",
          include: ["test/mcp-conformance/**/*.test.ts"],
          hookTimeout: 600_000,
          testTimeout: 120_000,
        },
      },
      {
        test: { name: "container", include: ["test/container/**/*.test.ts"], testTimeout: 60_000, hookTimeout: 60_000 },
      },
      { test: { name: "infra", include: ["test/infra/**/*.test.ts"], fileParallelism: false, testTimeout: 60_000 } },
    ],
  },
});
