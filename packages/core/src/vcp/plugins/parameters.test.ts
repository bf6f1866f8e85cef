import { expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { readManifest } from "./manifest-file.ts";
import { describeTool } from "./parameters.ts";

const manifest = readManifest(
  JSON.stringify({
    name: "Paint",
    pluginType: "synchronous",
    entryPoint: { command: "x" },
    communication: { protocol: "stdio" },
    capabilities: { invocationCommands: [{ description: "d" }] },
  }),
);
const commandsOf = (description: string): readonly string[] => [
  ...describeTool({
    ...manifest,
    commands: manifest.commands.map((command) => ({ ...command, description })),
  }).commands.values(),
];

test(`the commands that a manifest names are told apart ${verifies("VCP-3")}`, () => {
  const schema = describeTool({
    ...manifest,
    commands: manifest.commands.map((command) => ({
      ...command,
      description: "command:「始」generate / edit or compose或 x_1,y、z  |  w「末」",
    })),
  }).parameters;
  expect(JSON.stringify(schema)).toContain('"enum":["generate","edit","compose","x_1","y","z","w"]');
});

test(`and blanks in their place cost no more than other letters ${verifies("VCP-3")}`, () => {
  const blanks = `command:「始」a${" ".repeat(1_990)}b「末」\n`;
  expect(commandsOf(blanks.repeat(1_500))).toEqual([]);
});
