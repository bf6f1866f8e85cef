import { tablesSource } from "../../../../functions/build/module-host.ts";
import { expect, test } from "vitest";
import { tablesProgram } from "../local/tables-program.ts";

test("the kept program is the one that its sources make", async () => {
  // Not compared as texts: nobody wants to read the difference.
  const isCurrent = (await tablesSource()).includes(JSON.stringify(tablesProgram));
  expect(isCurrent, "run npm run build:module-host").toBe(true);
});
