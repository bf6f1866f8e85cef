/** A program held by a node beside the same program told the same line. */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import buildPrograms from "../../test/support/build-programs.ts";
import { endNodes, startNode } from "../../test/support/node-process.ts";
import type { ToolCase } from "./tool-case.ts";

const program = `
process.stdin.on("data", (part) => {
  for (const line of String(part).split("\\n").filter(Boolean)) {
    const { id } = JSON.parse(line);
    if (id !== undefined) process.stdout.write(JSON.stringify({ id, result: { celsius: 21 } }) + "\\n");
  }
});
`;

export const nodeCase: ToolCase = {
  bareClient: "pipe",
  withoutFloor: "a node asks before it begins: two exchanges more",
  async start(_backEnds, tenant) {
    await buildPrograms();
    const command = [process.execPath, "-e", program] as const;
    await startNode({
      url: tenant.url,
      key: tenant.headers["authorization"]?.replace("Bearer ", "") ?? "",
      name: "lab",
      tools: [{ name: "measure", description: "Measures.", command, effect: "read", resident: true }],
    });
    const [path, ...args] = command;
    const child = spawn(path, args, { stdio: ["pipe", "pipe", "ignore"] });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    let id = 0;
    return {
      uri: "node://measure",
      arguments: {},
      async bare() {
        id += 1;
        child.stdin.write(`${JSON.stringify({ id, arguments: {} })}\n`);
        const { value } = await lines.next();
        if ((JSON.parse(String(value)) as { readonly id: number }).id !== id) throw new Error(`it answered ${value}`);
      },
      async close() {
        child.kill();
        await endNodes();
      },
    };
  },
};
