// Checks templates of CloudFormation against the types that AWS publishes. It reads a JSON list of templates on its standard input and
// prints, for each, the list of what does not fit its types.
import { readFileSync } from 'node:fs';
import { loadAwsServiceSpecSync } from '@aws-cdk/aws-service-spec';

const types = loadAwsServiceSpecSync();
const typeOf = (name) => types.lookup('resource', 'cloudFormationType', 'equals', name)[0];

// Of what a template computes only the branches are known here.
const computed = (v) => v !== null && typeof v === 'object' && !Array.isArray(v) && Object.keys(v).length === 1 &&
  /^(Ref|Fn::.+)$/.test(Object.keys(v)[0]);

function check(where, v, type, wrong) {
  if (computed(v)) {
    const branches = v['Fn::If']?.slice(1) ?? [];
    for (const one of branches) {
      if (one?.Ref !== 'AWS::NoValue') check(where, one, type, wrong);
    }
    return;
  }
  const isMap = v !== null && typeof v === 'object' && !Array.isArray(v);
  const must = (ok, what) => { if (!ok) wrong.push(`${where}: ${JSON.stringify(v)} is no ${what}`); };
  switch (type.type) {
    case 'string': case 'date-time': return must(['string', 'number', 'boolean'].includes(typeof v), 'text');
    case 'number': return must(typeof v === 'number' || !Number.isNaN(Number.parseFloat(v)), 'number');
    case 'integer': return must(Number.isInteger(v) || /^-?[0-9]+$/.test(v), 'whole number');
    case 'boolean': return must(typeof v === 'boolean' || v === 'true' || v === 'false', 'boolean');
    case 'json': return must(isMap || typeof v === 'string', 'document');
    case 'array':
      must(Array.isArray(v), 'list');
      if (Array.isArray(v)) v.forEach((one, i) => check(`${where}[${i}]`, one, type.element, wrong));
      return;
    case 'map':
      must(isMap, 'map');
      if (isMap) for (const [key, one] of Object.entries(v)) check(`${where}.${key}`, one, type.element, wrong);
      return;
    case 'ref':
      must(isMap, 'map');
      if (isMap) properties(where, v, types.get('typeDefinition', type.reference.$ref).properties, wrong);
      return;
    case 'union': {
      const each = type.types.map((one) => { const w = []; check(where, v, one, w); return w; });
      if (!each.some((w) => w.length === 0)) wrong.push(...each[0]);
      return;
    }
    case 'tag': case 'null': return;
    default: wrong.push(`${where}: the type ${type.type} is not known to this check`);
  }
}

function properties(where, v, of, wrong) {
  for (const [key, one] of Object.entries(v)) {
    if (of[key]) check(`${where}.${key}`, one, of[key].type, wrong);
    else wrong.push(`${where}: there is no property ${key}`);
  }
  for (const [key, p] of Object.entries(of)) {
    if (p.required && !(key in v)) wrong.push(`${where}: ${key} is missing`);
  }
}

// attributes checks what v reads of resources.
function attributes(where, v, resources, wrong) {
  if (v === null || typeof v !== 'object') return;
  const read = (name, attribute) => {
    const type = resources[name] && typeOf(resources[name].Type);
    if (type && !(attribute in type.attributes)) wrong.push(`${where}: ${name} has no attribute ${attribute}`);
  };
  for (const [key, one] of Object.entries(v)) {
    if (key === 'Fn::GetAtt') read(...one);
    if (key === 'Fn::Sub') {
      for (const [, name, attribute] of String(one).matchAll(/\$\{([^}.!]+)\.([^}]+)\}/g)) read(name, attribute);
    }
    attributes(where, one, resources, wrong);
  }
}

console.log(JSON.stringify(JSON.parse(readFileSync(0, 'utf8')).map((template) => {
  const wrong = [];
  for (const [name, r] of Object.entries(template.Resources)) {
    const type = typeOf(r.Type);
    if (type) properties(name, r.Properties ?? {}, type.properties, wrong);
    else wrong.push(`${name}: there is no type ${r.Type}`);
    attributes(name, r.Properties, template.Resources, wrong);
  }
  attributes('Outputs', template.Outputs, template.Resources, wrong);
  return wrong;
})));
