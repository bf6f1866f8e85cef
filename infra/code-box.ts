/**
 * Where code of models runs. Its network leads to our bucket, by links that the box's program is given for large files,
 * and nowhere else: no internet gateway, no NAT, nobody to ask for a name. The code itself may make no socket at all
 * (functions/plugin-box), so these rules are its second wall.
 */
import { createBox } from "./box.ts";
import { seconds } from "./limits.ts";
import type { Permission } from "./permission.ts";
import { blobs } from "./storage.ts";

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

/** Of TCP, and the ports that answers come to. */
const https = { protocol: "tcp", fromPort: 443, toPort: 443 };
const answers = { protocol: "tcp", fromPort: 1024, toPort: 65_535 };

// The one route out. Its policy lets objects of our bucket be read with a link, and nothing be written or listed.
const bucketOnly = new aws.ec2.VpcEndpoint("CodeBoxBucket", {
  vpcId: network.id,
  vpcEndpointType: "Gateway",
  serviceName: $interpolate`com.amazonaws.${aws.getRegionOutput().region}.s3`,
  routeTableIds: [network.mainRouteTableId],
  policy: aws.iam.getPolicyDocumentOutput({
    statements: [
      {
        effect: "Allow",
        principals: [{ type: "*", identifiers: ["*"] }],
        actions: ["s3:GetObject"],
        resources: [$interpolate`${blobs.nodes.bucket.arn}/*`],
      },
    ],
  }).json,
});

// The defaults of a network let everything through. These lists know no names of services, so the group below is narrower.
new aws.ec2.DefaultNetworkAcl("CodeBoxPackets", {
  defaultNetworkAclId: network.defaultNetworkAclId,
  subnetIds: subnets.map(({ id }) => id),
  ingress: [{ ...answers, ruleNo: 100, action: "allow", cidrBlock: "0.0.0.0/0" }],
  egress: [{ ...https, ruleNo: 100, action: "allow", cidrBlock: "0.0.0.0/0" }],
});
new aws.ec2.DefaultSecurityGroup("CodeBoxNobody", { vpcId: network.id, ingress: [], egress: [] });

const toBucket = new aws.ec2.SecurityGroup("CodeBoxToBucket", {
  vpcId: network.id,
  description: "Out to the service of the bucket alone",
  ingress: [],
  egress: [{ ...https, prefixListIds: [bucketOnly.prefixListId] }],
});

export const codeBox = createBox("CodeBox", {
  directory: "code-box",
  description: "Runs code of models, one environment a tenant, without a way out",
  seconds: seconds.codeBox,
  network: { subnetIds: subnets.map(({ id }) => id), securityGroupIds: [toBucket.id] },
});

/** Also for invocations with response streaming. */
export const runCode: Permission = { actions: ["lambda:InvokeFunction"], resources: [codeBox.arn] };
