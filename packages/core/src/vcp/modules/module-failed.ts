/** A module that was asked and has failed, with how it did. */
import { GatewayError } from "../../errors/gateway-error.ts";
import { codeOf } from "./stage-error.ts";
import type { Fault } from "./wire.ts";

export class ModuleFailed extends GatewayError {
  readonly fault: Fault;

  constructor(plugin: string, fault: Fault) {
    super(codeOf(fault), `The module of '${plugin}' failed: ${fault.message}.`, { toolName: plugin });
    this.fault = fault;
  }
}
