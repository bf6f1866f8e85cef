/**
 * Where code of models runs. It reaches nothing: its network has no way out (no internet gateway, no NAT, no
 * endpoint), nobody to ask for a name, and no packet that its rules let through.
 */
import { createBox } from "./box.ts";
import { seconds } from "./limits.ts";
import type { Permission } from "./permission.ts";

const network = new aws.ec2.Vpc("CodeBoxNetwork", {
  cidrBlock: "10.255.0.0/24",
  enableDnsSupport: false,
  enableDnsHostnames: false,
});

// Two, so that one that cannot be used leaves the other.
const subnets = ["10.255.0.0/25", "10.255.0.128/25"].map(
  (cidrBlock, at) =>
    new aws.ec2.Subnet(`CodeBoxSubnet${at + 1}`, { vpcId: network.id, cidrBlock, mapPublicIpOnLaunch: false }),
);

// Without a rule, which is: nothing passes. The defaults of a network let everything through.
new aws.ec2.DefaultNetworkAcl("CodeBoxNoPackets", {
  defaultNetworkAclId: network.defaultNetworkAclId,
  subnetIds: subnets.map(({ id }) => id),
  ingress: [],
  egress: [],
});
new aws.ec2.DefaultSecurityGroup("CodeBoxNobody", { vpcId: network.id, ingress: [], egress: [] });

const silence = new aws.ec2.SecurityGroup("CodeBoxSilence", {
  vpcId: network.id,
  description: "Neither in nor out",
  ingress: [],
  egress: [],
});

export const codeBox = createBox("CodeBox", {
  directory: "code-box",
  description: "Runs code of models, one environment a tenant, without a network",
  seconds: seconds.codeBox,
  network: { subnetIds: subnets.map(({ id }) => id), securityGroupIds: [silence.id] },
});

/** Also for invocations with response streaming. */
export const runCode: Permission = { actions: ["lambda:InvokeFunction"], resources: [codeBox.arn] };
