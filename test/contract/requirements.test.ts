/** Keeps the tests' citations honest: only ids that exist, and a table in docs that is current. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { citedIds, readCitations, renderTable, root, tablePath, uncitedIds, unknownIds } from "./coverage.ts";

const citations = await readCitations();

describe("requirements", () => {
  test("are only cited by ids that exist", () => {
    const wrong = unknownIds(citations).map((id) => `${id}: ${citations.get(id)?.join(", ") ?? ""}`);
    expect(wrong, "ids cited by tests and absent from test/contract/requirements.ts").toEqual([]);
  });

  test("have a current table in docs", async () => {
    const written = await readFile(join(root, tablePath), "utf8");
    const isCurrent = written === renderTable(citations);
    expect(isCurrent, `${tablePath} is not current; run \`npm run coverage:requirements\``).toBe(true);
  });

  afterAll(() => console.log(`Requirements that no test cites: ${uncitedIds(citations).join(", ") || "none"}`));
});

describe("reading citations", () => {
  test("finds every id of a call, over several lines and once each", () => {
    const source = 'describe(`a ${verifies("A-1")}`);\ntest(verifies(\n  "B-2",\n  "A-1",\n));\nverify("C-3");';
    expect([...citedIds(source)]).toEqual(["A-1", "B-2"]);
  });

  test("reports an id that is no requirement", () => {
    expect(
      unknownIds(
        new Map([
          ["CHAT-1", ["a.test.ts"]],
          ["CHAT-999", ["b.test.ts"]],
        ]),
      ),
    ).toEqual(["CHAT-999"]);
  });
});
