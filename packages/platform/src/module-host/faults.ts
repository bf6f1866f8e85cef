/** What can be wrong with a module, told so that its author and the tenant know what to do. */
import type { Fault, ModuleFault } from "@toolyard/core/vcp/modules/wire";

const longestMessage = 2_000;

export class ModuleError extends Error {
  override readonly name = "ModuleError";
  readonly fault: ModuleFault;

  constructor(fault: ModuleFault, message: string) {
    super(message);
    this.fault = fault;
  }
}

/** Of whatever a module throws, which need not be an error and may do its worst when it is looked at. */
export function messageOf(thrown: unknown): string {
  try {
    if (thrown instanceof Error && typeof thrown.message === "string") return thrown.message.slice(0, longestMessage);
    return String(thrown).slice(0, longestMessage);
  } catch {
    return "it threw something that cannot be told";
  }
}

export function toFault(thrown: unknown): Fault {
  if (thrown instanceof ModuleError) return { fault: thrown.fault, message: thrown.message };
  return { fault: "threw", message: messageOf(thrown) };
}
