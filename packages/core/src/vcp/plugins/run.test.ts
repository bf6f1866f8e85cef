import { describe, expect, test } from "vitest";
import { toCommand } from "./run.ts";

describe("the command of a manifest", () => {
  test.for<readonly [string, readonly string[]]>([
    ["python script.py", ["python", "script.py"]],
    ["node  ./dist/main.js --port=80", ["node", "./dist/main.js", "--port=80"]],
    ["node a.js | tee log", ["/bin/sh", "-c", "node a.js | tee log"]],
    ['node "my file.js"', ["/bin/sh", "-c", 'node "my file.js"']],
    ["MODE=fast node a.js", ["/bin/sh", "-c", "MODE=fast node a.js"]],
    ["node $SCRIPT", ["/bin/sh", "-c", "node $SCRIPT"]],
    ["bin\\cli.exe", ["/bin/sh", "-c", "bin\\cli.exe"]],
    ["~/run", ["/bin/sh", "-c", "~/run"]],
    ["./run --all", ["./run", "--all"]],
    ["bin/run", ["bin/run"]],
    ["/usr/bin/python3 a.py", ["/bin/sh", "-c", "/usr/bin/python3 a.py"]],
    ["../run", ["/bin/sh", "-c", "../run"]],
    ["./bin/../../run", ["/bin/sh", "-c", "./bin/../../run"]],
  ])("%j begins as a shell would begin it", ([command, expected]) => {
    expect(toCommand(command)).toEqual(expected);
  });
});
