import { codeBoxSource } from "../../../../functions/build/module-host.ts";
import { expect, test } from "vitest";
import { codeBoxProgram } from "../local/code-box-program.ts";

test("the kept program is the one that its sources make", async () => {
  const isCurrent = (await codeBoxSource()).includes(JSON.stringify(codeBoxProgram));
  expect(isCurrent, "run npm run build:module-host").toBe(true);
});
