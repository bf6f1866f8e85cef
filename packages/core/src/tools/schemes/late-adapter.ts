/**
 * Stands for the adapter of a scheme that has not been read yet. Nobody has a service of it then, so there is
 * nothing to list, find or run; once it is read, this passes everything on.
 */
import type { CallContext } from "../../context.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { OAuthClient } from "../../oauth/client.ts";
import { lazily } from "../../once.ts";
import { noSuchService } from "../../services/runtime.ts";
import type { ServiceRuntime } from "../../services/scheme.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { InvocationContext, LateTool, ToolCall, ToolReply } from "../tool-call.ts";
import type { ToolAdapter } from "../adapter.ts";
import type { Tool } from "../tool.ts";
import type { ToolUri, UriOptions } from "../uri.ts";

export class LateAdapter implements ToolAdapter {
  readonly #scheme: string;
  readonly #read: () => Promise<ToolAdapter>;
  #made: ToolAdapter | undefined;

  constructor(scheme: string, make: () => Promise<ToolAdapter>) {
    this.#scheme = scheme;
    this.#read = lazily(make);
  }

  async load(): Promise<void> {
    this.#made = await this.#read();
  }

  get options(): UriOptions | undefined {
    return this.#made?.options;
  }

  get services(): ServiceRuntime | undefined {
    return this.#made?.services;
  }

  resolve(uri: ToolUri, context: CallContext): Tool | undefined {
    return this.#made?.resolve(uri, context);
  }

  list(context: CallContext): readonly Tool[] {
    return this.#made?.list(context) ?? [];
  }

  find(name: string, context: CallContext): Tool | undefined {
    return this.#made?.find?.(name, context);
  }

  whyMissing(uri: ToolUri, context: CallContext): string | undefined {
    return this.#made === undefined ? noSuchService(this.#scheme, uri.service) : this.#made.whyMissing?.(uri, context);
  }

  async invoke(call: ToolCall, context: InvocationContext): Promise<ToolReply> {
    if (this.#made !== undefined) return this.#made.invoke(call, context);
    throw withDelivery(new GatewayError("tool_not_found", noSuchService(this.#scheme, call.uri.service)), "not_sent");
  }

  async handOver(call: ToolCall, context: InvocationContext): Promise<boolean> {
    return (await this.#made?.handOver?.(call, context)) ?? false;
  }

  async readLate(tool: LateTool, text: string, context: CallContext): Promise<ToolReply | undefined> {
    return this.#made?.readLate?.(tool, text, context);
  }

  async explain(
    call: Omit<ToolCall, "id" | "attempt">,
    context: CallContext,
  ): ReturnType<NonNullable<ToolAdapter["explain"]>> {
    return (await this.#made?.explain?.(call, context)) ?? null;
  }

  async userClient(tool: Tool, context: CallContext): Promise<OAuthClient | undefined> {
    return this.#made?.userClient?.(tool, context);
  }
}
