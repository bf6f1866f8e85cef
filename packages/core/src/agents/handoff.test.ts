import { expect, test } from "vitest";
import type { AgentRecord } from "./agent.ts";
import { Handoffs, targetOf } from "./handoff.ts";

const first = (handoffs: number): AgentRecord => ({
  id: "agt_1",
  name: "first",
  description: "",
  model: null,
  instructions: "",
  tools: [],
  knowledge: [],
  handoffs: [],
  agents: [],
  limits: { handoffs, depth: 3 },
  tool_protocol: "openai",
  parameters: {},
  allow_client_tools: false,
  enabled: true,
  createdAt: 0,
  updatedAt: 0,
});

test("there and back is no loop, the same step twice with nothing done is", () => {
  const handoffs = new Handoffs(first(10));
  handoffs.admit("a", "b");
  handoffs.admit("b", "a");
  expect(() => handoffs.admit("a", "b")).toThrow(expect.objectContaining({ code: "handoff_loop" }));
});

test("a tool called in between is progress", () => {
  const handoffs = new Handoffs(first(10));
  handoffs.admit("a", "b");
  handoffs.madeProgress();
  handoffs.admit("b", "a");
  expect(() => handoffs.admit("a", "b")).not.toThrow();
});

test("at most so many, whoever makes them", () => {
  const handoffs = new Handoffs(first(1));
  handoffs.admit("a", "b");
  const refused = expect.objectContaining({
    code: "handoffs_exceeded",
    message: expect.stringContaining("limit 'handoffs' of agent 'first'"),
  });
  expect(() => handoffs.admit("b", "c")).toThrow(refused);
});

test("only names of its own kind hand over", () => {
  expect(targetOf("transfer_to_billing")).toBe("billing");
  expect(targetOf("create_order")).toBeUndefined();
});
