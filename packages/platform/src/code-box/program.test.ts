import { codeBoxSource } from "../../../../functions/build-module-host.ts";
import { expect, test } from "vitest";
import { codeBoxProgram } from "../local/code-box-program.ts";

test("the kept program is the one that its sources make", async () => {
  expect(await codeBoxSource(), "run npm run build:module-host").toContain(JSON.stringify(codeBoxProgram));
});
