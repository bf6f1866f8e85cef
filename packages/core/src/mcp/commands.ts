/**
 * Programs that an operator offers as MCP servers over stdio. Tenants choose one by its name and set the
 * variables that it is offered with; nothing else of a command line or an environment is theirs to say.
 */
import * as z from "zod";

const variableName = z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/);

export const mcpCommandsSchema = z.record(
  z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/),
  z.strictObject({
    command: z.tuple([z.string().min(1)], z.string()),
    /** Variables that tenants may set. */
    env: z.array(variableName).default([]),
  }),
);
export type McpCommands = z.output<typeof mcpCommandsSchema>;
