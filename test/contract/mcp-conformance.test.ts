/** Keeps docs/mcp-conformance.md current; `npm run test:mcp-conformance` holds its rows against the suite. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { suiteVersion } from "../mcp-conformance/suite.ts";
import { renderPage, tablePath } from "../mcp-conformance/table.ts";
import { root } from "./coverage.ts";

test("the table of MCP conformance is current", async () => {
  const written = await readFile(join(root, tablePath), "utf8");
  const isCurrent = written === renderPage(await suiteVersion());
  expect(isCurrent, `${tablePath} is not current; run \`npm run conformance:table\``).toBe(true);
});
