import js from '@eslint/js';
import ts from 'typescript-eslint';

export default ts.config(
  { ignores: ['labextension/lib/**', 'labextension/tests/lib/**'] },
  js.configs.recommended,
  ...ts.configs.strictTypeChecked,
  ...ts.configs.stylisticTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        project: ['labextension/tsconfig.json', 'labextension/tests/tsconfig.json'],
        tsconfigRootDir: import.meta.dirname
      }
    },
    rules: {
      '@typescript-eslint/explicit-module-boundary-types': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      eqeqeq: 'error',
      // Lumino's signals take the object beside its method: connect(this.follow, this).
      '@typescript-eslint/unbound-method': 'off'
    }
  },
  {
    files: ['labextension/src/**/*.ts'],
    ignores: ['labextension/src/ui/dom.ts'],
    rules: {
      'no-restricted-syntax': [
        'error',
        { selector: "AssignmentExpression[left.property.name='hidden']", message: 'Use setHidden().' }
      ]
    }
  },
  // Plain JavaScript, of no TypeScript project.
  {
    files: ['labextension/style/*.js', 'labextension/*.cjs'],
    languageOptions: { globals: { module: 'writable', require: 'readonly' } },
    extends: [ts.configs.disableTypeChecked],
    // A .cjs file has no import statements.
    rules: { '@typescript-eslint/no-require-imports': 'off' }
  },
  {
    files: ['labextension/tests/*.ts'],
    // node:test awaits what test() returns by itself.
    rules: { '@typescript-eslint/no-floating-promises': 'off' }
  }
);
