import { tablesSource } from "../../../../functions/build-module-host.ts";
import { expect, test } from "vitest";
import { tablesProgram } from "../local/tables-program.ts";

test("the kept program is the one that its sources make", async () => {
  expect(await tablesSource(), "run npm run build:module-host").toContain(JSON.stringify(tablesProgram));
});
